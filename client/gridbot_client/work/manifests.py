"""Judges manifests, once each, and the inputs that single jobs bring."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gridbot_client.protocol import programs
from gridbot_client.protocol.manifest import admits
from gridbot_client.protocol.messages import (
    Assignment,
    FileRef,
    Manifest,
    ProtocolError,
    Scalar,
    SignedManifest,
    manifest_id,
)
from gridbot_client.protocol.signatures import Revocation
from gridbot_client.protocol.software import covered
from gridbot_client.work.trust import Approval, Distrusted, Trust

_MOST_KEPT = 200


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a replica does not run here: a reason code, and a sentence for people."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class JudgedManifest:
    """A manifest with its approval, or its rejection.

    Of a BOT with several programs, it is what this machine runs of it.
    """

    signed: SignedManifest
    manifest: Manifest
    approval: Approval | None = None
    rejection: Rejection | None = None

    @property
    def is_strangers(self) -> bool:
        """True if it runs because the project vouches for it, not because of its owner."""
        return self.approval is None or self.approval.is_strangers


class ForbiddenInput(Exception):
    """A job's own input is not one that its BOT may have, or would replace something signed."""


def check_inputs(manifest: Manifest, program: str, inputs: Sequence[FileRef]) -> None:
    """Check a job's own inputs against its BOT.  Raises ForbiddenInput.

    Names and kinds are those that the manifest allows.  Whatever it allows, an input replaces
    neither a shared input nor the command's `program`: a file in the slot has priority over one on
    the search path.
    """
    taken = {posixpath.normpath(ref.name) for ref in manifest.inputs}
    for ref in inputs:
        name = posixpath.normpath(ref.name)
        if name in taken:
            raise ForbiddenInput(f"input {ref.name} of this job would replace another input")
        if name == posixpath.normpath(program):
            raise ForbiddenInput(f"input {ref.name} of this job would replace the signed command")
        if archive := next((a for a in manifest.archives if covered(a, [name])), ""):
            raise ForbiddenInput(
                f"input {ref.name} of this job would lie in {archive}, or above it"
            )
        if not admits(manifest.job_inputs, ref):
            kind = "an executable input" if ref.executable else "an input"
            raise ForbiddenInput(f"the BOT's signature allows no job to have {kind} {ref.name}")
        taken.add(name)


# The machine owner's policy about a BOT: the clause that forbids it, or None.
PolicyObstacle = Callable[[Mapping[str, Scalar]], str | None]


def no_obstacle(_: Mapping[str, Scalar]) -> None:
    """Policy of a machine whose owner has none."""


Describe = Callable[[], Mapping[str, Scalar]]  # this machine, as its ad


class Manifests:
    """Manifests that this client has received; the server sends each only once."""

    def __init__(
        self, trust: Trust, obstacle: PolicyObstacle = no_obstacle, describe: Describe = dict
    ) -> None:
        self._trust = trust
        self._obstacle = obstacle
        self._describe = describe
        self._judged: dict[str, JudgedManifest] = {}

    def take_in(self, found: Mapping[str, SignedManifest]) -> None:
        """Add received manifests.  Raises ProtocolError if one does not match its id."""
        for id, signed in found.items():
            if manifest_id(signed.text) != id:
                raise ProtocolError(f"manifests: the text of {id} does not match this id")
        for id, signed in found.items():
            if id not in self.ids():
                self._judged[id] = self._judge(signed)
        while len(self._judged) > _MOST_KEPT:
            del self._judged[next(iter(self._judged))]

    def get(self, id: str) -> JudgedManifest | None:
        """Manifest with its judgement, or None if it was not received."""
        return self._judged.get(id)

    def ids(self) -> tuple[str, ...]:
        """Ids of the manifests that need not be sent again.

        A rejected one may come with better signatures, or with a key's introduction.
        """
        return tuple(id for id, judged in self._judged.items() if judged.approval)

    def revoked(self, revocations: Sequence[Revocation]) -> None:
        """Judge all manifests anew, now that these keys and BOTs are revoked."""
        self._trust.revocations = revocations
        self._judged = {id: self._judge(old.signed) for id, old in self._judged.items()}

    def rejection(
        self, judged: JudgedManifest, job: Assignment, *, has_arrived: bool = True
    ) -> Rejection | None:
        """Why a job does not run here, or None if it may.

        The owner's policy is evaluated for what has arrived, whatever the server made of it; jobs
        that were here before run to their end.
        """
        if judged.rejection:
            return judged.rejection
        assert judged.approval
        try:
            self._trust.check_job(judged.signed, judged.manifest, job)
        except Distrusted as error:
            return Rejection("unsigned", f"{error}\n")
        bot: dict[str, Scalar] = {
            "Owner": judged.manifest.owner,
            "Signed": judged.approval.by_project,
        }
        if has_arrived and (clause := self._obstacle(bot)):
            return Rejection("owner_policy", f"the machine's owner does not allow it: {clause}\n")
        return None

    def _judge(self, signed: SignedManifest) -> JudgedManifest:
        try:
            manifest = Manifest.from_text(signed.text)
        except ProtocolError as error:
            nobody = Manifest(owner="", command=())
            invalid = Rejection("bad_arguments", f"invalid manifest: {error}\n")
            return JudgedManifest(signed, nobody, rejection=invalid)
        if manifest.boinc_api:
            why = Rejection("bad_arguments", "the BOT's program is for BOINC clients alone\n")
            return JudgedManifest(signed, manifest, rejection=why)
        try:
            approval = self._trust.approval(signed, manifest)
        except Distrusted as error:
            why = Rejection("unsigned", f"a BOT of {manifest.owner} does not run here: {error}\n")
            return JudgedManifest(signed, manifest, rejection=why)
        if not manifest.programs:
            return JudgedManifest(signed, manifest, approval)
        return self._with_program(signed, manifest, approval)

    def _with_program(
        self, signed: SignedManifest, manifest: Manifest, approval: Approval
    ) -> JudgedManifest:
        """Choose among the programs that the signature covers, whatever the server has chosen."""
        host = self._describe()
        is_at_home = approval.by_owner or host.get("IsPilot") is True
        chosen = programs.choose(
            manifest.programs, host, may_use_gpus=is_at_home and not manifest.image
        )
        if chosen is None:
            there = ", ".join(item.where for item in manifest.programs)
            why = Rejection("no_program", f"the BOT has no program for this machine, but {there}\n")
            return JudgedManifest(signed, manifest, rejection=why)
        return JudgedManifest(signed, manifest.running(chosen), approval)
