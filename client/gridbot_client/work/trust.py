"""Decides whether a signed BOT may run here, from keys that this machine's user pinned.

No name that the server tells is trusted.  Strangers' BOTs need the signature of the pinned project
key; the user's own BOTs, and those of owners that the user accepts, need that of an owner's key
whose fingerprint is pinned.  A key that a pinned key introduced is as good as that one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gridbot_client.protocol import job_table
from gridbot_client.protocol.fields import ProtocolError
from gridbot_client.protocol.manifest import CLOCK_ERROR_SECONDS, LATEST, VERSION
from gridbot_client.protocol.messages import (
    MAX_REVOCATIONS,
    Assignment,
    Manifest,
    SignedManifest,
    manifest_id,
)
from gridbot_client.protocol.signatures import (
    Revocation,
    fingerprint,
    manifest_statement,
    reachable,
    verify,
)


@dataclass(frozen=True, slots=True)
class Approval:
    """Why a BOT may run here: for the keys that signed it."""

    by_owner: bool  # the user's own key, or one that the user accepts
    by_project: bool

    @property
    def is_strangers(self) -> bool:
        """True if it runs only because the project vouches for it."""
        return not self.by_owner


class Distrusted(Exception):
    """A BOT or a job may not run here; the message says why."""


@dataclass(frozen=True, slots=True)
class Pins:
    """What this machine's user pinned: the key and the identity of the project, owners' keys.

    All are fingerprints.  `project` is that of the project's first key; it is empty if the client
    joined before servers told it.
    """

    project_key: str
    project: str
    owners: frozenset[str]


@dataclass(slots=True)
class Trust:
    """The pins, what keys have said since, and the time."""

    pins: Pins
    clock: Callable[[], float]
    revocations: Sequence[Revocation] = ()

    def approval(self, signed: SignedManifest, manifest: Manifest) -> Approval:
        """Why a BOT may run here.  Raises Distrusted if it may not.

        Each signature that is there must be valid, also where another one would do.
        """
        self._check_validity(manifest)
        revoked = self._revoked(signed, manifest)
        if manifest_id(signed.text) in revoked:
            raise Distrusted(f"the signature on BOT {manifest.bot} was revoked")
        if manifest.owner_key and fingerprint(bytes.fromhex(manifest.owner_key)) in revoked:
            raise Distrusted("the key that signs its jobs was revoked")
        found = Approval(
            self._is_by_owner(signed, manifest, revoked), self._is_by_project(signed, revoked)
        )
        if not (found.by_owner or found.by_project):
            raise Distrusted(self._why_untrusted(signed, manifest))
        return found

    def check_job(self, signed: SignedManifest, manifest: Manifest, job: Assignment) -> None:
        """Raise Distrusted unless the job belongs to the signed BOT."""
        if manifest.range is not None:
            if not job_table.follows_range(manifest.range, job.id.seq, job.args, job.inputs):
                raise Distrusted(f"job {job.id.seq} is not in the signed range of its BOT")
            return
        key = bytes.fromhex(manifest.owner_key) if manifest.owner_key else signed.project_key
        try:
            proof = job_table.Proof.decode(job.proof)
            leaf = job_table.leaf(job_table.job_text(job.args, job.inputs))
            root = job_table.proven_root(leaf, proof)
            first = job.id.seq - proof.place
            if first < 0:
                raise ProtocolError("proof: its part begins before the first job")
        except ProtocolError as error:
            raise Distrusted(f"job {job.id.seq} is not signed: {error}") from None
        part = job_table.statement(manifest_id(signed.text), first, proof.size, root)
        if not verify(key, part, proof.signature):
            raise Distrusted(f"job {job.id.seq} does not belong to the signed BOT")

    def with_revocations(self, told: Sequence[Revocation]) -> tuple[Revocation, ...]:
        """What is known to be revoked, with what the server tells now, as far as it is genuine.

        A server cannot make the client forget a revocation by telling many: those of pinned keys,
        which nobody else can make, come first, then those that came first.
        """
        known = dict.fromkeys(self.revocations)
        known.update(dict.fromkeys(item for item in told if item not in known and item.is_valid()))
        pinned = {self.pins.project_key, self.pins.project, *self.pins.owners}
        found = sorted(known, key=lambda item: fingerprint(item.signer) not in pinned)
        return tuple(found[:MAX_REVOCATIONS])

    def _check_validity(self, manifest: Manifest) -> None:
        if manifest.version > LATEST:
            raise Distrusted(
                f"its manifest is of version {manifest.version}, and this client knows {LATEST};"
                " update the client"
            )
        if manifest.version < VERSION:
            raise Distrusted(
                f"it was signed in a form that does not cover its jobs (version {manifest.version},"
                f" needed {VERSION}); submit it again"
            )
        if self.pins.project and manifest.project != self.pins.project:
            raise Distrusted("it was signed for another project")
        now = self.clock()
        if now + CLOCK_ERROR_SECONDS < manifest.not_before:
            raise Distrusted("its signature is not valid yet; is this machine's clock right?")
        if now - CLOCK_ERROR_SECONDS > manifest.expires:
            raise Distrusted("its signature has expired; submit it again")

    def _is_by_owner(
        self, signed: SignedManifest, manifest: Manifest, revoked: frozenset[str]
    ) -> bool:
        if signed.owner_signature is None:
            return False
        key = bytes.fromhex(manifest.owner_key)
        if not verify(key, manifest_statement(signed.text), signed.owner_signature):
            raise Distrusted("the owner's signature on it is not valid")
        return fingerprint(key) in reachable(self.pins.owners, signed.introductions, revoked)

    def _is_by_project(self, signed: SignedManifest, revoked: frozenset[str]) -> bool:
        if signed.signature is None:
            return False
        key = signed.project_key
        roots = [self.pins.project_key]
        if fingerprint(key) not in reachable(roots, signed.introductions, revoked):
            raise Distrusted("the project key on it is not the one pinned when this client joined")
        if not verify(key, manifest_statement(signed.text), signed.signature):
            raise Distrusted("the signature on it is not by this project's key")
        return True

    def _why_untrusted(self, signed: SignedManifest, manifest: Manifest) -> str:
        if signed.owner_signature is None:
            return "nobody signed it"
        return (
            f"it is signed by key {fingerprint(bytes.fromhex(manifest.owner_key))} only, which this"
            " client does not trust; if you know that key: gridbot client trust FINGERPRINT"
        )

    def _revoked(self, signed: SignedManifest, manifest: Manifest) -> frozenset[str]:
        """Keys and BOTs that were revoked by a key that may revoke them.

        Keys of the project and of trusted owners revoke anything on this machine; any other key
        revokes itself, what it introduced, and the BOTs that it signed.
        """
        made = {fingerprint(item.new): fingerprint(item.old) for item in signed.introductions}
        if manifest.owner_key:
            made[manifest_id(signed.text)] = fingerprint(bytes.fromhex(manifest.owner_key))
        pinned = (self.pins.project_key, *self.pins.owners)
        masters = reachable(pinned, signed.introductions)
        return frozenset(
            item.subject
            for item in self.revocations
            if (by := fingerprint(item.signer)) in masters
            or by in (item.subject, made.get(item.subject))
        )
