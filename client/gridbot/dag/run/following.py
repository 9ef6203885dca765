"""The threads of a run: they take the results of its BOTs, and see which jobs have begun."""

from __future__ import annotations

import math
import queue
import random
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from gridbot.api.connection import AWAY_PAUSES, patiently
from gridbot.api.errors import BotHeld, GridbotError, NotFound, Refused, ServerAway
from gridbot.api.results import Result
from gridbot.dag.engine.events import (
    JobEnded,
    JobHeld,
    JobReleased,
    JobRemoved,
    JobStarted,
    RunEvent,
)
from gridbot.dag.run.lot import JobAtServer, LotTable, NodeLot
from gridbot.reliable.scope import Cancellation, Cancelled, Scope, entered, present

T = TypeVar("T")

_LOOK_SECONDS = 0.5  # between two looks at which jobs have begun
_PATIENCE = 5.0  # seconds before a BOT that is held is looked at again
_HOST_FAULTS = 2  # of one job that are borne
_CANCEL = 60.0  # seconds that a server may be away when jobs are to be cancelled
_CANCELLED = "cancelled"

Told = Callable[[RunEvent], None]
Say = Callable[[str], None]
# Takes what a job returned, and returns what the journal is to know of it.
Keep = Callable[[NodeLot, Result, JobAtServer], Mapping[str, Any]]


class LotFollower:
    """Follows the BOTs of a run until it is over; events are told from its threads."""

    def __init__(self, table: LotTable, told: Told, say: Say, keep: Keep) -> None:
        self._table, self._told, self._say, self._keep = table, told, say, keep
        self.is_over = Cancellation()
        self._lock = threading.Lock()
        self._is_away = False  # the server, and that was said
        self._looker: threading.Thread | None = None
        self._to_cancel = queue.SimpleQueue[tuple[NodeLot, list[int]]]()
        self._canceller: threading.Thread | None = None

    def follow(self, lot: NodeLot) -> None:
        """See that the results of a BOT are taken."""
        with self._table.lock:
            lot.has_jobs.set()
            if lot.thread is None:
                lot.thread = self._started(self._follow, lot)
            if self._looker is None:
                self._looker = self._started(self._look)

    def patiently(self, call: Callable[[], T], *, for_: float = math.inf) -> T:
        """Call, and again while the server is away and the run goes on.  Raises ServerAway."""
        with entered(Scope(present().deadline, self.is_over)):
            try:
                found = patiently(call, self._away, for_=for_)
            except Cancelled:
                raise ServerAway("the run is over") from None
        self._is_away = False
        return found

    def _away(self, error: ServerAway) -> None:
        """Say that the server is away, once for all BOTs."""
        with self._lock:
            was_away, self._is_away = self._is_away, True
        if not was_away:
            self._say(f"{error}; waiting for the server")

    @staticmethod
    def _started(work: Callable[..., None], *args: Any) -> threading.Thread:
        thread = threading.Thread(target=work, args=args, daemon=True)
        thread.start()
        return thread

    # --- cancelling

    def cancel(self, lot: NodeLot, numbers: list[int]) -> None:
        """Cancel jobs of a BOT when the server can be reached; their ends are told."""
        self._to_cancel.put((lot, numbers))
        with self._table.lock:
            if self._canceller is None:
                self._canceller = self._started(self._cancel)

    def _cancel(self) -> None:
        while not self.is_over.is_set():
            lot, numbers = self._to_cancel.get()
            try:
                state = self.patiently(partial(lot.bot.cancel, numbers), for_=_CANCEL)
            except NotFound:
                self.lose(lot, f"BOT {lot.bot.id} is gone")
            except GridbotError as error:  # they end by themselves
                self._say(f"jobs of BOT {lot.bot.id} are not cancelled: {error}")
            else:
                for seq in state.document.get("cancelled", ()):
                    self._left(lot, seq, "")

    # --- results

    def _follow(self, lot: NodeLot) -> None:
        failures = 0
        while not self.is_over.is_set():
            lot.has_jobs.wait()
            seen = lot.seen
            try:
                self._take_results(lot)
            except BotHeld as error:
                self._hold(lot, str(error))
                self.is_over.wait(_PATIENCE)
            except ServerAway as error:
                failures = failures + 1 if lot.seen == seen else 1
                self.is_over.wait(AWAY_PAUSES.after(error, failures, random.random()))  # noqa: S311
            except OSError as error:
                self._say(f"an output cannot be written: {error}")
                self.is_over.wait(_PATIENCE)
            except GridbotError as error:
                self.lose(lot, str(error))

    def _take_results(self, lot: NodeLot) -> None:
        for result in lot.bot.results(follow=True, after=lot.seen, told=self._away):
            if self.is_over.is_set():
                return
            self._is_away = False
            self._release(lot)
            self._take(lot, result)
            lot.seen = result.n
            with self._table.lock:
                if not lot.jobs:
                    lot.has_jobs.clear()
                    return
        if lot.jobs:
            self.lose(lot, f"BOT {lot.bot.id} was cancelled")

    def lose(self, lot: NodeLot, why: str) -> None:
        """Tell that the jobs of a BOT are lost."""
        with self._table.lock:
            lost = list(lot.jobs)
            lot.has_jobs.clear()
        for seq in lost:
            self._left(lot, seq, why)

    def _hold(self, lot: NodeLot, why: str) -> None:
        """Tell that jobs are held; each once."""
        self._say(f"BOT {lot.bot.id} is held: {why}; gridbot bot resume {lot.bot.id}")
        with self._table.lock:
            held = [job for job in lot.jobs.values() if not job.is_held]
            for job in held:
                job.is_held = True
        for job in held:
            self._told(JobHeld(job.node, job.process, why))

    def _release(self, lot: NodeLot) -> None:
        """Results come again."""
        with self._table.lock:
            released = [job for job in lot.jobs.values() if job.is_held]
            for job in released:
                job.is_held = False
        for job in released:
            self._told(JobReleased(job.node, job.process))

    def _take(self, lot: NodeLot, result: Result) -> None:
        with self._table.lock:
            job = lot.jobs.get(result.seq)
        if job is None:
            return
        if result.state == "failed" and _is_host_fault(result, job):
            job.faults += 1
            try:
                self.patiently(partial(lot.bot.retry, [result.seq]))
            except (Refused, NotFound):
                job.faults = _HOST_FAULTS + 1
            else:
                return
        kept = self._keep(lot, result, job)
        if not job.is_cancelled:
            self._told(JobStarted(job.node, job.process))
        self._told_left(lot, result.seq, _end_of(result, job, kept))

    def _left(self, lot: NodeLot, seq: int, why: str) -> None:
        """A job was removed, or is lost."""
        with self._table.lock:
            job = lot.jobs.get(seq)
        if job is not None:
            self._told_left(lot, seq, JobRemoved(job.node, job.process, why))

    def _told_left(self, lot: NodeLot, seq: int, event: RunEvent) -> None:
        if self._table.pop(lot, seq) is not None:
            self._told(event)

    # --- which have begun

    def _look(self) -> None:
        """See which jobs have begun: of each BOT, those that wait no more, the oldest first."""
        while not self.is_over.wait(_LOOK_SECONDS):
            for lot in self._table.known():
                if lot.jobs and lot.begun < lot.total:
                    self._look_at(lot)

    def _look_at(self, lot: NodeLot) -> None:
        with self._table.lock:
            total = lot.total
        try:
            state = lot.bot.show()
        except GridbotError:
            self.is_over.wait(1.0)
            return
        if not state.is_held:
            self._release(lot)
        document = state.document
        appended = min(total, int(document["jobs_total"]))
        begun = appended - int(document["jobs_waiting"])
        with self._table.lock:
            new = [job for seq, job in lot.jobs.items() if lot.begun <= seq < begun]
            lot.begun = max(lot.begun, begun)
        for job in new:
            self._told(JobStarted(job.node, job.process))


def save_outputs(lot: NodeLot, result: Result, job: JobAtServer) -> Mapping[str, Any]:
    """Write what a job returned; of one that died, what its host kept of what it printed."""
    for name, output in result.outputs.items():
        if (path := job.destination.path(name)) is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            patiently(partial(output.save, path))
    if result.state == "failed" and result.reason != _CANCELLED:
        lines = [*lot.bot.logs(result.seq)]
        for name in ("stdout", "stderr"):
            path = job.destination.path(name)
            if path is not None and lines and name not in result.outputs:
                path.write_text(str(lines[-1].get(name) or ""), encoding="utf-8")
    return {}


def _is_host_fault(result: Result, job: JobAtServer) -> bool:
    """Whether no program of ours ended, so that HTCondor would run the job again."""
    has_ended = result.exit_code is not None or result.signal is not None
    said = has_ended or job.is_cancelled or result.reason == _CANCELLED
    return not said and job.faults < _HOST_FAULTS


def _end_of(result: Result, job: JobAtServer, kept: Mapping[str, Any]) -> RunEvent:
    if result.state != "failed" or result.exit_code:
        return JobEnded(job.node, job.process, result.exit_code or 0, result.n, kept)
    if result.signal is not None and result.reason != _CANCELLED:
        return JobEnded(job.node, job.process, -result.signal, result.n, kept)
    reason = "" if result.reason == _CANCELLED else result.reason
    return JobRemoved(job.node, job.process, reason, result.n)
