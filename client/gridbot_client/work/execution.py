"""Executes one replica, from assignment to report, and uploads its outputs."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gridbot_client.backoff import REQUESTS, BackOff
from gridbot_client.host import gpus
from gridbot_client.net.sources import SourceClient
from gridbot_client.net.transport import (
    CorruptDownload,
    NotOurServer,
    RequestRefused,
    ServerUnavailable,
    Transport,
)
from gridbot_client.protocol.messages import (
    Assignment,
    FileRef,
    Manifest,
    Output,
    ReplicaId,
    Report,
)
from gridbot_client.protocol.output_names import output_names
from gridbot_client.protocol.template import TemplateError, fill
from gridbot_client.work import checkpoints, outputs
from gridbot_client.work.building import BuildInterrupted
from gridbot_client.work.cache import Cache
from gridbot_client.work.checkpoint_sender import CheckpointSender
from gridbot_client.work.checkpoints import ReplicaCheckpoint
from gridbot_client.work.containers import CONTAINER_FAILED
from gridbot_client.work.gangs import Gang
from gridbot_client.work.manifests import ForbiddenInput, JudgedManifest, check_inputs
from gridbot_client.work.outputs import OutputError
from gridbot_client.work.places import PlaceKey, ReplicaPlace, ReplicaPlaces
from gridbot_client.work.provision import Provision
from gridbot_client.work.residents import ResidentJob
from gridbot_client.work.runner import (
    EXIT_NONZERO,
    GRACE_SECONDS,
    LOST,
    NOT_STARTED,
    STOPPED,
    ProcessEnd,
    ReplicaProgram,
    Runs,
    Stop,
    created_at,
)
from gridbot_client.work.shared import CannotProvide, Interrupted
from gridbot_client.work.slots import ReplicaSlot, RunRecord
from gridbot_client.work.sourcing import JobSources, NoSource

# Reasons by which this client refuses a job, as its owner is to hear.
REFUSALS = ("input_forbidden", "sandbox_too_weak")
MOST_STARTS = 3  # of one replica; more mean that it takes the client down with it
_MOST_CORRUPT = 3
# Over all sources of an input, while none adds anything; with a back-off of two minutes in all.
_MOST_ROUNDS = 8
# An upload's offset moved, or its hash was wrong and the server dropped it: start over.
_PASSING = (409, 422)
_MOST_REFUSALS = 5
_FAILURES = (RequestRefused, ServerUnavailable, NotOurServer, CorruptDownload, NoSource)
# What this machine cannot do is tried again, for five minutes in all.
_MOST_MACHINE_FAILURES = 16
_MACHINE_PAUSES = BackOff(least=0.2, most=30.0)

log = logging.getLogger(__name__)


class Stopped(Exception):
    """The replica was stopped on request; it has no report."""


class GangOver(Stopped):
    """The server has taken the replica back: others of its gang failed, or did not come."""


class _Failed(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class _MachineFailed(Exception):
    """The job could not be run here, through no fault of its own."""


class _Saved(Exception):
    """The program has saved a checkpoint, with which it is started again."""


@dataclass(frozen=True, slots=True)
class ReplicaExecutor:
    """Executes replicas; safe to use from many threads."""

    runner: Runs
    cache: Cache
    places: ReplicaPlaces
    provision: Provision
    connect: Callable[[], Transport]  # a connection for the thread that calls
    sources: SourceClient

    def execute(
        self, slot: ReplicaSlot, assignment: Assignment, judged: JudgedManifest, stop: Stop,
        granted: Mapping[str, str],
    ) -> Report:  # fmt: skip
        """Run a replica and return its report.  Raises Stopped, or Unfit if nothing was reported.

        `granted` are variables by which it sees what is its own, such as GPUs.
        What this machine failed to do is tried again for some minutes: it says nothing of the job.
        """
        manifest = judged.manifest
        if manifest.checkpoint is None:
            return self._execute(slot, assignment, judged, stop, granted)
        saved = ReplicaCheckpoint(slot, manifest, manifest.checkpoint)
        self._take_checkpoint(slot, saved, stop)
        sender, is_stopped = CheckpointSender(self.connect, saved), True
        try:
            while True:
                sender.saved()
                try:
                    report = self._execute(slot, assignment, judged, stop, granted, saved)
                except _Saved:
                    continue
                is_stopped = False
                return saved.totals(report)
        except Stopped:
            sender.saved()
            raise
        finally:
            sender.close(sends_last=is_stopped)

    def _take_checkpoint(self, slot: ReplicaSlot, saved: ReplicaCheckpoint, stop: Stop) -> None:
        """Take the job's checkpoint from the server, unless one is here."""
        if saved.kept:
            return
        try:
            with self.connect() as transport:
                _persist(partial(saved.fetch, transport), stop)
        except RequestRefused as error:
            log.warning("replica %s begins anew: %s", slot.id, error)

    def _execute(
        self, slot: ReplicaSlot, assignment: Assignment, judged: JudgedManifest, stop: Stop,
        granted: Mapping[str, str], saved: ReplicaCheckpoint | None = None,
    ) -> Report:  # fmt: skip
        """As `execute`, from the checkpoint that was saved.  Also raises _Saved."""
        failures = 0
        while True:
            try:
                return self._attempt(slot, assignment, judged, stop, granted, saved)
            except _MachineFailed as error:
                failures += 1
                if failures == _MOST_MACHINE_FAILURES:
                    return failure(slot.id, "client_error", f"{error}\n")
                log.warning("replica %s is tried again: %s", slot.id, error)
            stop.wait(_MACHINE_PAUSES.seconds(failures))
            if stop.is_asked:
                raise Stopped

    def _attempt(
        self, slot: ReplicaSlot, assignment: Assignment, judged: JudgedManifest, stop: Stop,
        granted: Mapping[str, str], saved: ReplicaCheckpoint | None,
    ) -> Report:  # fmt: skip
        manifest = judged.manifest
        starts = slot.run_record().starts
        if starts >= MOST_STARTS:
            detail = f"the client or its warden ended {starts} times while this replica ran\n"
            return failure(slot.id, "client_restarted_too_often", detail)
        is_stranger = judged.is_strangers
        if refusal := self.runner.confinement.refusal(
            is_stranger=is_stranger, least=manifest.walls.level
        ):
            return failure(slot.id, "sandbox_too_weak", f"{refusal}\n")
        # A program that stays keeps the GPUs with which it began.
        own = granted.get(gpus.GIVEN_VARIABLE, "")
        key = PlaceKey(assignment.id.bot, assignment.manifest, is_stranger, own)
        with self.places.taken(slot, key) as place:
            report = self._report(slot, place, assignment, judged, starts, stop, granted, saved)
        if report.how == "success" or report.reason == "time_limit" or not place.has_program:
            return report
        # A program that has run other jobs may have failed for their sake.
        with self.places.taken(slot, key, fresh=True) as place:
            return self._report(slot, place, assignment, judged, starts, stop, granted, saved)

    def _report(
        self, slot: ReplicaSlot, place: ReplicaPlace, assignment: Assignment,
        judged: JudgedManifest, starts: int, stop: Stop, granted: Mapping[str, str],
        saved: ReplicaCheckpoint | None,
    ) -> Report:  # fmt: skip
        """Run a replica in its place; leave in its own slot what is to be uploaded."""
        manifest, ended, job = judged.manifest, ProcessEnd(""), None
        shown = place.slot  # where its outputs are
        try:
            names = {ref.name for ref in (*manifest.inputs, *assignment.inputs)}
            program = replace(_program(manifest, assignment, names), granted=granted)
            check_inputs(manifest, program.argv[0], assignment.inputs)
            if saved:
                saved.check(assignment.inputs)
            wanted = output_names(manifest, assignment.args)
            if place.kept and manifest.resident and not manifest.image:
                job, shown = _resident_job(slot, manifest, assignment), slot
            sources = JobSources.of(
                self.sources, manifest, assignment, stop, is_stranger=judged.is_strangers
            )
            program = self._equipped(program, assignment, judged, place, stop, sources)
            if not place.has_program:
                self._fetch(manifest.files, place.slot, stop, sources)
            self._fetch(assignment.inputs, shown, stop, sources)
            if saved:
                saved.restore(place.slot)
                program = replace(program, granted={**program.granted, **saved.variables()})
                ended = self._run(program, slot, place, None, judged, starts, stop, saved)
            else:
                ended = self._run_together(program, slot, place, job, judged, starts, stop)
            if ended.reason == CONTAINER_FAILED:  # as the next one would
                self.provision.unfit.add(assignment.manifest)
            if reason := _reason(ended, manifest):
                raise _Failed(reason, ended.detail)
            if saved:
                saved.complete(shown)
            found = outputs.collect(shown, wanted, manifest.max_output_bytes, names)
        except TemplateError as error:
            return failure(slot.id, "bad_arguments", f"{error}\n")
        except ForbiddenInput as error:
            return failure(slot.id, "input_forbidden", f"{error}\n")
        except Interrupted:
            raise Stopped from None
        except BuildInterrupted as error:
            if stop.is_asked:
                raise Stopped from None
            raise _MachineFailed(str(error)) from None
        except (_Failed, CannotProvide, OutputError) as error:
            return _finished(shown, ended, error.reason, str(error))
        if shown is not slot:
            place.hand_over(slot, [output.name for output in found if output.content is None])
        return replace(_finished(shown, ended, "", ""), how="success", outputs=found)

    def _run_together(
        self, program: ReplicaProgram, slot: ReplicaSlot, place: ReplicaPlace,
        job: ResidentJob | None, judged: JudgedManifest, starts: int, stop: Stop,
    ) -> ProcessEnd:  # fmt: skip
        """Run a program, that of a gang's member with the others.  Raises GangOver without them."""
        size = judged.manifest.together
        if size == 1:
            return self._run(program, slot, place, job, judged, starts, stop)
        with Gang(self.connect, slot.id, size, stop) as gang:
            granted = {**program.granted, **gang.gather()}
            try:
                program = replace(program, granted=granted)
                return self._run(program, slot, place, job, judged, starts, stop)
            except Stopped:
                if gang.is_over:
                    raise GangOver from None
                raise

    def _run(
        self, program: ReplicaProgram, slot: ReplicaSlot, place: ReplicaPlace,
        job: ResidentJob | None, judged: JudgedManifest, starts: int, stop: Stop,
        saved: ReplicaCheckpoint | None = None,
    ) -> ProcessEnd:  # fmt: skip
        """Run a program.  Raises _Saved if it is to go on from what it has saved."""
        limits = judged.manifest.resources
        if stop.is_asked:
            raise Stopped
        where = str(place.slot.path)
        slot.save_run(RunRecord(starts + 1, place=where))

        def started(pid: int) -> None:
            slot.save_run(RunRecord(starts + 1, pid, created_at(pid), where))

        ended = self.runner.run(
            program,
            place.slot,
            saved.left(limits) if saved else limits,
            stop,
            started,
            is_stranger=judged.is_strangers,
            wants_network=judged.manifest.walls.network,
            kept=None if program.container else place.kept,
            job=job,
            grace_seconds=checkpoints.GRACE_SECONDS if saved else GRACE_SECONDS,
        )
        if saved and ended.reason not in (NOT_STARTED, LOST):
            slot.forget_runs()
        if saved and saved.is_saved(ended):
            _keep(saved, place, ended, stop)
            if not stop.is_asked:
                raise _Saved
        if ended.reason == STOPPED or stop.is_asked:
            raise Stopped
        if ended.reason == NOT_STARTED:
            slot.save_run(RunRecord(starts)) if starts else slot.forget_runs()
        if ended.reason in (NOT_STARTED, LOST):
            raise _MachineFailed(ended.detail)
        return ended

    def _equipped(
        self, program: ReplicaProgram, assignment: Assignment, judged: JudgedManifest,
        place: ReplicaPlace, stop: Stop, sources: JobSources,
    ) -> ReplicaProgram:  # fmt: skip
        def fetch(ref: FileRef, target: Path) -> None:
            with self.connect() as transport:
                self._fetch_one(ref, target, transport, stop, sources)

        return self.provision.equip(
            program, assignment.manifest, judged.manifest, place, fetch, stop,
            is_stranger=judged.is_strangers,
        )  # fmt: skip

    def _fetch(
        self, refs: tuple[FileRef, ...], slot: ReplicaSlot, stop: Stop, sources: JobSources
    ) -> None:
        if not refs:
            return
        with self.connect() as transport:
            for ref in refs:
                self._fetch_one(ref, slot.work / ref.name, transport, stop, sources)

    def _fetch_one(
        self, ref: FileRef, target: Path, transport: Transport, stop: Stop, sources: JobSources
    ) -> None:
        """Download an input; retry while the server is away, a few times if the hash is wrong."""
        corrupt = rounds = reached = 0
        download = partial(sources.download, ref.name, transport)

        def attempt() -> None:
            nonlocal corrupt, rounds, reached
            try:
                self.cache.put(ref, target, download, sources.whose(ref.name))
            except NoSource as error:
                rounds = 1 if error.reached > reached else rounds + 1
                reached = max(reached, error.reached)
                if rounds == _MOST_ROUNDS or not error.may_pass:
                    raise _Failed(error.reason, f"input {ref.name}: {error}\n") from None
                raise
            except CorruptDownload as error:
                corrupt += 1
                if corrupt == _MOST_CORRUPT:
                    raise _Failed("input_corrupt", f"input {ref.name}: {error}\n") from None
                raise
            except RequestRefused as error:
                if error.shuts_out:
                    raise
                detail = f"input {ref.name}: {error}\n"
                raise _Failed("input_unavailable", detail) from None

        _persist(attempt, stop)

    def upload(self, slot: ReplicaSlot, report: Report, stop: Stop) -> Report:
        """Upload outputs too large for the report; return the report to send.

        Retries while the server is away.  If the server refuses an output, the replica fails.
        """
        wanted = [output for output in report.outputs if output.content is None]
        if not wanted:
            return report
        with self.connect() as transport:
            for output in wanted:
                try:
                    _persist(partial(_upload_one, transport, slot, output), stop)
                except RequestRefused as error:
                    reason = "output_too_big" if error.code == 413 else "upload_refused"
                    detail = f"output {output.name} of {output.size} bytes: {error}\n"
                    return _without_outputs(report, reason, detail)
                except OSError as error:
                    return _without_outputs(report, "missing_output", f"{error}\n")
        return report


def _keep(saved: ReplicaCheckpoint, place: ReplicaPlace, ended: ProcessEnd, stop: Stop) -> None:
    """Keep a checkpoint.  A program that was stopped may fail to save: it has done no wrong."""
    try:
        saved.save(place.slot, ended)
    except OutputError as error:
        if not stop.is_asked:
            raise
        log.warning("replica %s was stopped without a checkpoint: %s", place.slot.id, error)


def _resident_job(slot: ReplicaSlot, manifest: Manifest, assignment: Assignment) -> ResidentJob:
    names = tuple(ref.name for ref in assignment.inputs)
    return ResidentJob(manifest.resident, slot, names, manifest.max_output_bytes)


def _program(manifest: Manifest, assignment: Assignment, names: AbstractSet[str]) -> ReplicaProgram:
    """What the replica runs.  Raises TemplateError."""
    types, args = manifest.placeholders, assignment.args
    (stdin,) = fill((manifest.stdin,), types, args)
    if stdin and stdin not in names:
        raise TemplateError(f"standard input {stdin!r} is no input of this job")
    values = fill(tuple(manifest.environment.values()), types, args)
    return ReplicaProgram(
        argv=fill(manifest.command, types, args),
        environment=dict(zip(manifest.environment, values, strict=True)),
        stdin=stdin,
    )


def _reason(ended: ProcessEnd, manifest: Manifest) -> str:
    """Why a program that has ended failed, as a reason code; empty if it gave an answer."""
    if ended.reason not in ("", EXIT_NONZERO) or ended.exit_code is None:
        return ended.reason
    if manifest.is_answer(ended.exit_code):
        return ""
    return ended.reason or "exit_zero"


def failure(id: ReplicaId, reason: str, detail: str) -> Report:
    """Report of a replica that never ran."""
    return Report(id, "error", reason, stderr=detail)


def _finished(slot: ReplicaSlot, ended: ProcessEnd, reason: str, detail: str) -> Report:
    return Report(
        slot.id,
        "error",
        reason,
        ended.exit_code,
        ended.cpu_seconds,
        ended.wall_seconds,
        stdout=outputs.tail(slot.stdout),
        stderr=outputs.tail(slot.stderr) + detail,
    )


def _without_outputs(report: Report, reason: str, detail: str) -> Report:
    return replace(report, how="error", reason=reason, outputs=(), stderr=report.stderr + detail)


def _upload_one(transport: Transport, slot: ReplicaSlot, output: Output) -> None:
    with outputs.open_output(slot, output.name) as file:
        transport.upload(slot.id, output, file)


def _persist(attempt: Callable[[], None], stop: Stop) -> None:
    """Repeat a transfer until it succeeds or is refused.  Raises Stopped.

    A loop of its own, and not `gridbot.reliable`, of which the light client has only the pauses:
    a replica's `Stop` ends it, and refusals pass a few times.
    """
    failures = 0
    while not stop.is_asked:
        try:
            return attempt()
        except _FAILURES as error:
            if isinstance(error, RequestRefused) and not _passes(error, failures):
                raise
            failures += 1
            pause = REQUESTS.after(error, failures, random.random())  # noqa: S311
        stop.wait(pause)
    raise Stopped


def _passes(error: RequestRefused, failures: int) -> bool:
    """Whether a refusal after so many failures is no reason to give up."""
    # Revoked or banned: the next request for work deals with it.
    return error.shuts_out or (error.code in _PASSING and failures < _MOST_REFUSALS)
