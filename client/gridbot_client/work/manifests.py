"""Judges manifests, once each, and the inputs that single jobs bring."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from gridbot_client.protocol.messages import (
    FileRef,
    Manifest,
    ProtocolError,
    SignedManifest,
    manifest_id,
)
from gridbot_client.protocol.signatures import refusal

_MOST_KEPT = 200


@dataclass(frozen=True, slots=True)
class JudgedManifest:
    """A manifest with reason code and text of its refusal, both empty if it may run."""

    signed: SignedManifest
    manifest: Manifest
    reason: str = ""
    detail: str = ""
    is_own: bool = False  # of this machine's owner, or of one whom that accepts

    @property
    def is_signed(self) -> bool:
        """True if it runs because of its signature, not of its owner."""
        return self.signed.signature is not None


class ShadowingInput(Exception):
    """A job's own input would replace a shared input or the signed command."""


def admitted_inputs(
    judged: JudgedManifest, program: str, inputs: Sequence[FileRef]
) -> tuple[FileRef, ...]:
    """Return a job's own inputs as they may be placed in its slot.  Raises ShadowingInput.

    A signature covers the manifest, not the files of single jobs.  So a job's input must not
    replace a shared input.  In a signed BOT it must not be the command's `program` either, because
    a file in the slot has priority over one on the search path, and it is never executable.
    """
    shared = {ref.name for ref in judged.manifest.inputs}
    for ref in inputs:
        if ref.name in shared:
            raise ShadowingInput(f"input {ref.name} of this job would replace the BOT's input")
        if judged.is_signed and posixpath.normpath(program) == posixpath.normpath(ref.name):
            raise ShadowingInput(f"input {ref.name} of this job would replace the signed command")
    if judged.is_signed:
        return tuple(replace(ref, executable=False) for ref in inputs)
    return tuple(inputs)


class Manifests:
    """Manifests that this client has received; the server sends each only once."""

    def __init__(self, public_key: bytes, trusted: Collection[str]) -> None:
        self._public_key = public_key
        self._trusted = trusted
        self._judged: dict[str, JudgedManifest] = {}

    def take_in(self, found: Mapping[str, SignedManifest]) -> None:
        """Add received manifests.  Raises ProtocolError if one does not match its id."""
        for id, signed in found.items():
            if manifest_id(signed.text) != id:
                raise ProtocolError(f"manifests: the text of {id} does not match this id")
        for id, signed in found.items():
            if id not in self._judged:
                self._judged[id] = self._judge(signed)
        while len(self._judged) > _MOST_KEPT:
            del self._judged[next(iter(self._judged))]

    def get(self, id: str) -> JudgedManifest | None:
        """Manifest with its judgement, or None if it was not received."""
        return self._judged.get(id)

    def ids(self) -> tuple[str, ...]:
        """Ids of the received manifests."""
        return tuple(self._judged)

    def _judge(self, signed: SignedManifest) -> JudgedManifest:
        try:
            manifest = Manifest.from_text(signed.text)
        except ProtocolError as error:
            nobody = Manifest(owner="", command=())
            return JudgedManifest(signed, nobody, "bad_arguments", f"invalid manifest: {error}\n")
        why = refusal(signed, manifest.owner, self._public_key, self._trusted)
        if why:
            return JudgedManifest(signed, manifest, "unsigned", f"{why}\n")
        return JudgedManifest(signed, manifest, is_own=manifest.owner in self._trusted)
