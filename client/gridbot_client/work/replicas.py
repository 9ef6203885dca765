"""Replicas that this client holds, their slots and the threads that execute them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from gridbot_client import agent
from gridbot_client.activity import ActivityLog
from gridbot_client.agent import LocalReplica, Room, Stage
from gridbot_client.boot import since_boot
from gridbot_client.host import gpus as devices
from gridbot_client.host.gpus import Gpu
from gridbot_client.protocol.messages import (
    MAX_REPORTS,
    Assignment,
    Followed,
    LiveOutput,
    ProtocolError,
    ReplicaId,
    ReplicaProgress,
    Report,
    WorkReply,
)
from gridbot_client.work import checkpoints, processes, spool
from gridbot_client.work.execution import (
    REFUSALS,
    GangOver,
    ReplicaExecutor,
    Stopped,
    failure,
)
from gridbot_client.work.live_output import pieces
from gridbot_client.work.manifests import JudgedManifest, Manifests, Rejection
from gridbot_client.work.nodes import NODES
from gridbot_client.work.pace import Pace
from gridbot_client.work.processes import Census
from gridbot_client.work.progress import progress_of
from gridbot_client.work.provision import Unfit
from gridbot_client.work.run_spans import RunSpans
from gridbot_client.work.runner import Stop
from gridbot_client.work.slots import ReplicaSlot, SpareFolders, slot_of, slots_in

log = logging.getLogger(__name__)

_MOST_THREADS = 2 * agent.MOST_HELD  # as many as are held run, upload or wait at most
_MOST_REPORT_BYTES = 512 << 10  # of the reports of one request


@dataclass(slots=True)
class Held:
    """One replica on this client."""

    slot: ReplicaSlot
    assignment: Assignment
    judged: JudgedManifest
    expires_at: float
    stage: Stage = Stage.WAITING
    report: Report | None = None
    stop: Stop = field(default_factory=Stop)
    is_dropped: bool = False
    is_called_back: bool = False  # the server wants it for others, unless it has begun
    gpus: tuple[Gpu, ...] = ()  # that it uses while it runs
    nodes: tuple[int, ...] = (0,)  # on which it runs then, of those of a pilot

    @property
    def id(self) -> ReplicaId:
        """Id of the replica."""
        return self.slot.id


class Told(NamedTuple):
    """Reports for a request, ids of all other replicas held, how many of these, the last ones, may
    be called back, how far programs are that say so, and what somebody follows.
    """

    reports: tuple[Report, ...]
    holding: tuple[ReplicaId, ...]
    unstarted: int
    progress: tuple[ReplicaProgress, ...]
    live: tuple[LiveOutput, ...]


class HeldReplicas:
    """Replicas of this client.  The condition `changed` guards them and signals their ends."""

    def __init__(
        self, slots: Path, spares: SpareFolders, room: Room, executor: ReplicaExecutor,
        activity: ActivityLog, run_spans: RunSpans, gpus: Sequence[Gpu] = (),
        nodes: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.changed = threading.Condition()
        self.is_halted = False  # revoked, paused or leaving: nothing is started
        self.has_room_again = False  # by what the server took back: there may be other work
        self.pace = Pace(room.cpus)
        self._slots = slots
        self._spares = spares
        self.room = room  # that replicas may take now
        self.lent: Sequence[LocalReplica] = ()  # what others than replicas use of it
        self._gpus = gpus
        self._nodes = nodes
        self._executor = executor
        self._activity = activity
        self._run_spans = run_spans
        self._held: dict[ReplicaId, Held] = {}
        self._followed: tuple[Followed, ...] = ()
        self._threads = ThreadPoolExecutor(_MOST_THREADS, "replica")

    def items(self) -> list[LocalReplica]:
        """Replicas in order of arrival, with the fields that decisions need."""
        with self.changed:
            return [self._item(held) for held in self._held.values()]

    def _item(self, held: Held) -> LocalReplica:
        resources = held.judged.manifest.resources
        seconds = self.pace.seconds(held.id.bot)
        return LocalReplica(held.id, resources, held.stage, seconds, held.nodes)

    def to_tell(self) -> Told:
        """What the next request tells."""
        with self.changed:
            reports = tuple(_as_many_as_fit(self._held.values()))
            told = {report.id for report in reports}
            kept = [
                held for held in self._held.values() if not held.is_dropped and held.id not in told
            ]
            waiting = [held.id for held in kept if self._may_be_called_back(held)]
            others = [held.id for held in kept if not self._may_be_called_back(held)]
            running = {held.id: held.slot for held in kept if held.stage is Stage.RUNNING}
        progress = tuple(_progress(running.values()))
        live = tuple(pieces(self._followed, running))
        return Told(reports, (*others, *waiting), len(waiting), progress, live)

    def _may_be_called_back(self, held: Held) -> bool:
        """Whether it has not begun, and others would wait for long behind it."""
        if held.stage is not Stage.WAITING:
            return False
        seconds = self.pace.seconds(held.id.bot)
        return seconds is None or seconds > self.pace.lookahead_seconds

    def call_back(self, ids: Iterable[ReplicaId]) -> bool:
        """Keep these from starting, unless they have; whether there are any to return."""
        with self.changed:
            found = [held for id in ids if (held := self._held.get(id))]
            for held in found:
                held.is_called_back = held.stage is Stage.WAITING
            return any(held.is_called_back for held in found)

    def keep(self) -> None:
        """Let those start again that were called back: they could not be returned."""
        with self.changed:
            for held in self._held.values():
                held.is_called_back = False

    def take_in(self, reported: Iterable[Report], reply: WorkReply, manifests: Manifests) -> None:
        """Apply a reply.  Idempotent, because a reply may be repeated."""
        fresh = [held for item in reply.assignments if (held := self._accept(item, manifests))]
        with self.changed:
            self._held.update((held.id, held) for held in fresh)
            self._followed = reply.follow
            for report in reported:
                self._move(report.id, Stage.FINISHED, Stage.REPORTED)
            over = (*reply.acks, *reply.abort)
            gone = [held for id in over if (held := self._drop(id))]
            for id in reply.reupload:
                self._upload_again(id)
            self.start_ready()
        for held in gone:
            self._spares.take_back(held.slot)
        for bot in {held.id.bot for held in fresh}:
            self._activity.got(bot, sum(held.id.bot == bot for held in fresh))

    def start_ready(self) -> None:
        """Start the replicas that fit."""
        with self.changed:
            if self.is_halted:
                return
            items = [*self.lent, *self._next_items()]
            for id, nodes in agent.to_start(items, self.room).items():
                held = self._held[id]
                held.nodes = nodes
                held.gpus = self._free_gpus()[: held.judged.manifest.resources.gpus]
                held.stage, held.stop = Stage.RUNNING, Stop()
                self._spawn(held, self._run)

    def _free_gpus(self) -> tuple[Gpu, ...]:
        """GPUs that nothing that runs has."""
        running = (held for held in self._held.values() if held.stage is Stage.RUNNING)
        used = {gpu for held in running for gpu in held.gpus}
        return tuple(gpu for gpu in self._gpus if gpu not in used)

    def _next_items(self) -> list[LocalReplica]:
        """What runs, and no more of what waits than could start: each takes a core at least.

        This is asked whenever a replica ends, and hundreds of short ones may wait.
        """
        running = [held for held in self._held.values() if held.stage is Stage.RUNNING]
        waiting = (
            held
            for held in self._held.values()
            if held.stage is Stage.WAITING and not self._goes_back(held)
        )
        return [self._item(held) for held in (*running, *islice(waiting, self.room.cpus + 1))]

    def to_return(self) -> tuple[ReplicaId, ...]:
        """Replicas that have not begun, and cannot run here or are called back."""
        with self.changed:
            return tuple(
                held.id
                for held in self._held.values()
                if held.stage is Stage.WAITING and self._goes_back(held)
            )

    def _goes_back(self, held: Held) -> bool:
        return held.is_called_back or self._is_unfit(held)

    def _is_unfit(self, held: Held) -> bool:
        """Whether it cannot run here: no environment of its BOT, or fewer GPUs than it asks for."""
        has_too_few = held.judged.manifest.resources.gpus > len(self._gpus)
        return has_too_few or held.assignment.manifest in self._executor.provision.unfit

    def drop(self, ids: Iterable[ReplicaId]) -> None:
        """Forget replicas that have not begun."""
        with self.changed:
            gone = [held for id in ids if (held := self._drop(id))]
        for held in gone:
            self._spares.take_back(held.slot)

    def stop_running(self) -> None:
        """Stop all processes; their replicas wait to be started again."""
        with self.changed:
            self.is_halted = True
            for held in self._held.values():
                if held.stage is Stage.RUNNING:
                    held.stop.ask()

    def save_checkpoints(self) -> None:
        """Let programs that can save what they have do so and end; returns once that is sent.

        It takes no longer than they are given for that.
        """
        until = time.monotonic() + checkpoints.GRACE_SECONDS + checkpoints.SEND_SECONDS
        with self.changed:
            saving = [
                held
                for held in self._held.values()
                if held.stage is Stage.RUNNING and held.judged.manifest.checkpoint
            ]
            self.is_halted = self.is_halted or bool(saving)
            for held in saving:
                held.stop.ask()
            while any(held.stage is Stage.RUNNING for held in saving):
                if (left := until - time.monotonic()) <= 0:
                    return
                self.changed.wait(left)

    def running_seconds(self, now: float) -> dict[int, float]:
        """By BOT, for how long the longest of its replicas has run; `now` is in s since 1970.

        Those that go on elsewhere from a checkpoint are left out.
        """
        longest = dict[int, float]()
        with self.changed:
            for held in self._held.values():
                goes_on = held.stage is not Stage.RUNNING or held.judged.manifest.checkpoint
                if not goes_on and (began := held.slot.started_at()) is not None:
                    seconds = max(0.0, now - began)
                    longest[held.id.bot] = max(seconds, longest.get(held.id.bot, 0.0))
        return longest

    def give_back(self) -> int:
        """Drop all that is unfinished, which the server has taken back; return their number."""
        with self.changed:
            found = [held.id for held in self._held.values() if held.stage in agent.UNFINISHED]
            gone = [held for id in found if (held := self._drop(id))]
        for held in gone:
            self._spares.take_back(held.slot)
        return len(found)

    def leave(self) -> None:
        """Stop all processes and threads; the slots stay for the next run."""
        with self.changed:
            self.is_halted = True
            for held in self._held.values():
                held.stop.ask()
        self._threads.shutdown()
        self._run_spans.close()

    def recover(self, census: Census, manifests: Manifests) -> int:
        """Kill processes of an earlier run and resume its replicas; return their number."""
        slots = list(slots_in(self._slots))
        for slot in slots:
            record = slot.run_record()
            processes.kill_recorded(record.pid, record.created)
        processes.kill_all(lambda: census.under(str(self._slots)))
        with self.changed:
            for slot in slots:
                self._take_up(slot, manifests)
        return len(self._held)

    # --- applying a reply

    def _accept(self, assignment: Assignment, manifests: Manifests) -> Held | None:
        """Save a new assignment, or its refusal; None if its manifest is missing.

        The next request then names neither, so that the server sends both again.
        """
        judged = manifests.get(assignment.manifest)
        if assignment.id in self._held or judged is None:
            return None
        slot = slot_of(self._slots, assignment.id)
        self._spares.furnish(slot)
        slot.save_assignment(assignment, judged.signed)
        held = Held(slot, assignment, judged, since_boot() + assignment.deadline_seconds)
        if why := manifests.rejection(judged, assignment):
            self._activity.refused(held.id.bot, why.detail.strip())
            held.report = _committed(slot, failure(held.id, why.reason, why.detail))
            held.stage = Stage.FINISHED
        return held

    def _drop(self, id: ReplicaId) -> Held | None:
        """Drop a replica; return it if the caller must remove it, for lack of a thread of its own.

        A replica that the server has already acknowledged may run: a crash had corrupted the
        client's copy of its report.
        """
        held = self._held.get(id)
        if held is None:
            return None
        if held.stage in (Stage.RUNNING, Stage.UPLOADING):
            held.is_dropped = True
            held.stop.ask()
            return None
        return self._held.pop(id)

    def _upload_again(self, id: ReplicaId) -> None:
        """Upload and report again, with the next regular request so that it cannot loop."""
        if self._move(id, Stage.REPORTED, Stage.UPLOADING):
            self._spawn(self._held[id], partial(self._push, last=Stage.REPORTED))

    def _move(self, id: ReplicaId, before: Stage, after: Stage) -> bool:
        held = self._held.get(id)
        if held is None or held.stage is not before:
            return False
        held.stage = after
        return True

    def _take_up(self, slot: ReplicaSlot, manifests: Manifests) -> None:
        found = slot.assignment()
        if found is None:
            slot.remove()
            return
        assignment, signed = found
        try:
            manifests.take_in({assignment.manifest: signed})
        except ProtocolError:
            slot.remove()
            return
        judged = manifests.get(assignment.manifest)
        assert judged
        left = assignment.deadline_seconds - slot.age_seconds()
        self._held[slot.id] = held = Held(slot, assignment, judged, since_boot() + left)
        rejection = manifests.rejection(judged, assignment, has_arrived=False)
        if slot.is_finished:
            held.stage = Stage.UPLOADING
            self._spawn(held, partial(self._push_recovered, rejection=rejection))
        else:
            self._run_again(held, rejection)

    def _run_again(self, held: Held, rejection: Rejection | None) -> None:
        """Let a replica of an earlier run start once there is room, unless it is rejected now."""
        held.stage = Stage.WAITING
        if rejection:
            held.report = failure(held.id, rejection.reason, rejection.detail)
            held.stage = Stage.FINISHED

    # --- one replica, in a thread

    def _spawn(self, held: Held, work: Callable[[Held], None]) -> None:
        self._threads.submit(self._work, held, work)

    def _work(self, held: Held, work: Callable[[Held], None]) -> None:
        """Do a replica's work and notify; the work may raise Stopped or Unfit."""
        try:
            work(held)
        except (Stopped, Unfit) as why:
            if isinstance(why, GangOver):
                held.is_dropped = self.has_room_again = True
            self._stopped(held)
        except BaseException:
            log.exception("the thread of replica %s ended", held.id)
            raise
        finally:
            with self.changed:
                self.changed.notify()

    def _run(self, held: Held) -> None:
        self._end(held, self._execute(held), Stage.UPLOADING)
        self._push(held, Stage.FINISHED)

    def _push(self, held: Held, last: Stage) -> None:
        """Upload the outputs of a replica that has ended."""
        assert held.report
        self._end(held, self._executor.upload(held.slot, held.report, held.stop), last)

    def _push_recovered(self, held: Held, rejection: Rejection | None) -> None:
        """Push what an earlier run has committed; if that is not whole, the replica runs again."""
        try:
            held.report = spool.recovered(held.slot, partial(_check_stop, held.stop))
        except Stopped:
            if held.is_dropped:
                raise
            return  # the client leaves: the next run reads it
        with self.changed:
            if held.is_dropped:
                raise Stopped
            if held.report is None:
                self._run_again(held, rejection)
                self.start_ready()
                return
        self._push(held, Stage.FINISHED)

    def _execute(self, held: Held) -> Report:
        if since_boot() >= held.expires_at:
            return failure(held.id, "deadline_passed", "the deadline passed before it started\n")
        began = self._run_spans.clock()
        try:
            granted = dict(devices.variables(held.gpus, self._gpus))
            if self._nodes:
                granted[NODES] = ",".join(self._nodes[node] for node in held.nodes)
            report = self._executor.execute(
                held.slot, held.assignment, held.judged, held.stop, granted
            )
        except OSError as error:  # a full disk, above all: the replica may go elsewhere
            log.exception("replica %s", held.id)
            return failure(held.id, "client_error", f"error in the client: {error}\n")
        self._run_spans.tell(held.judged.signed.traced, report, began)
        if report.reason in REFUSALS:
            self._activity.refused(held.id.bot, report.stderr.strip())
        return report

    def _end(self, held: Held, report: Report, stage: Stage) -> None:
        """Commit a report before anything depends on it, then free the room."""
        if report is not held.report:
            report = _committed(held.slot, report)
            log.info("replica %s: %s %s", held.id, report.how, report.reason)
            self._activity.ended(held.id.bot, report.reason)
        with self.changed:
            if held.is_dropped:
                raise Stopped
            if report.how == "success":
                self.pace.ended(held.id.bot, held.judged.manifest.resources, report.wall_seconds)
            held.report, held.stage = report, stage
            self.start_ready()

    def _stopped(self, held: Held) -> None:
        """Remove a dropped replica; any other one waits again, as if never started."""
        if held.is_dropped:
            held.slot.remove()
        else:
            held.slot.forget_runs()
        with self.changed:
            if held.is_dropped:
                del self._held[held.id]
            elif held.report is None:
                held.stage = Stage.WAITING
            self.start_ready()


def _check_stop(stop: Stop) -> None:
    """Raise Stopped once the stop is requested."""
    if stop.is_asked:
        raise Stopped


def _committed(slot: ReplicaSlot, report: Report) -> Report:
    """Commit a report and return it; where the disk fails, one that depends on no file.

    If that cannot be committed either, the job runs again after a crash.
    """
    try:
        spool.commit(slot, report)
        return report
    except OSError as error:
        log.exception("replica %s could not be committed", slot.id)
        if report.outputs:
            detail = f"its outputs could not be kept: {error}\n"
            report = failure(slot.id, "client_error", detail)
    with suppress(OSError):
        spool.commit(slot, report)
    return report


def _progress(running: Iterable[ReplicaSlot]) -> Iterator[ReplicaProgress]:
    for slot in running:
        if (part := progress_of(slot.place())) is not None:
            yield ReplicaProgress(*slot.id, round(part, 3))


def _as_many_as_fit(held: Iterable[Held]) -> Iterator[Report]:
    """Yield the reports for one request: at least one if any, bounded in number and bytes."""
    used, count = 0, 0
    for one in held:
        if one.report is None or one.stage not in (Stage.FINISHED, Stage.REPORTED):
            continue
        used += _size(one.report)
        count += 1
        if count > 1 and (used > _MOST_REPORT_BYTES or count > MAX_REPORTS):
            return
        yield one.report


def _size(report: Report) -> int:
    content: Sequence[bytes] = [output.content or b"" for output in report.outputs]
    return sum(map(len, content)) + len(report.stdout) + len(report.stderr)
