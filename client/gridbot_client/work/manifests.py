"""Judges manifests once each: what they say, and whether their commands may run here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gridbot_client.protocol.messages import Manifest, ProtocolError, SignedManifest, manifest_id
from gridbot_client.protocol.signatures import refusal

_MOST_KEPT = 200


@dataclass(frozen=True, slots=True)
class Judged:
    """A manifest with the reason code and text of its refusal, both empty when it may run."""

    signed: SignedManifest
    manifest: Manifest
    reason: str = ""
    detail: str = ""


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
