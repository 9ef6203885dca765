"""Judges what a server sends: manifests, once each, and the inputs that single jobs bring."""

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
class Judged:
    """A manifest with the reason code and text of its refusal, both empty when it may run."""

    signed: SignedManifest
    manifest: Manifest
    reason: str = ""
    detail: str = ""

    @property
    def is_signed(self) -> bool:
        """Whether it runs for its signature, not for its owner's name."""
        return self.signed.signature is not None


class ShadowingInput(Exception):
    """A job's own input would take the place of something that the signature covers."""


def admitted_inputs(judged: Judged, program: str, inputs: Sequence[FileRef]) -> tuple[FileRef, ...]:
    """Return a job's own inputs as they may be laid into its slot; raise ShadowingInput.

    A signature covers the manifest and says nothing of single jobs' files.  So none of these may
    take the place of a shared input, whoever sent the BOT.  For signed BOTs, none may be the
    `program` that the command names either, since a file of the slot goes before one on the
    search path, and none is executable.
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
    """The manifests that this client has; it needs each from the server only once."""

    def __init__(self, public_key: bytes, trusted: Collection[str]) -> None:
        self._public_key = public_key
        self._trusted = trusted
        self._judged: dict[str, Judged] = {}

    def take_in(self, found: Mapping[str, SignedManifest]) -> None:
        """Judge manifests that came; ProtocolError when one is not what its id says."""
        for id, signed in found.items():
            if manifest_id(signed.text) != id:
                raise ProtocolError(f"manifests: the text of {id} hashes to another id")
        for id, signed in found.items():
            if id not in self._judged:
                self._judged[id] = self._judge(signed)
        while len(self._judged) > _MOST_KEPT:
            del self._judged[next(iter(self._judged))]

    def get(self, id: str) -> Judged | None:
        """What is known of a manifest."""
        return self._judged.get(id)

    def ids(self) -> tuple[str, ...]:
        """The manifests that the server need not send again."""
        return tuple(self._judged)

    def _judge(self, signed: SignedManifest) -> Judged:
        try:
            manifest = Manifest.from_text(signed.text)
        except ProtocolError as error:
            nobody = Manifest(owner="", command=())
            return Judged(signed, nobody, "bad_arguments", f"the manifest is wrong: {error}\n")
        why = refusal(signed, manifest.owner, self._public_key, self._trusted)
        if why:
            return Judged(signed, manifest, "unsigned", f"{why}\n")
        return Judged(signed, manifest)
