"""The jobs of a run at the server: a growing BOT for each shape, followed by its own thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gridbot.api.connection import patiently
from gridbot.api.errors import BotHeld, GridbotError, NotFound, Refused, ServerAway
from gridbot.api.results import Result
from gridbot.api.session import Bot, Session
from gridbot.dag.engine.events import (
    JobEnded,
    JobHeld,
    JobReleased,
    JobRemoved,
    JobStarted,
    RunEvent,
)
from gridbot.dag.run.shapes import OutputPlace, Shape, ShapedJob, submission_of

_LOOK_SECONDS = 0.5  # between two looks at which jobs have begun
_PATIENCE = 5.0  # seconds before a BOT that is held is looked at again
_HOST_FAULTS = 2  # of one job that are borne
_MOST_AT_ONCE = 5000  # jobs in one append
_CANCEL = 60.0  # seconds that a server may be away when jobs are to be cancelled
_CANCELLED = "cancelled"

Told = Callable[[RunEvent], None]
Say = Callable[[str], None]


@dataclass
class JobAtServer:
    """A job that has no result yet."""

    node: str
    process: int
    destination: OutputPlace
    faults: int = 0
    is_cancelled: bool = False
    is_held: bool = False


@dataclass(eq=False)
class NodeLot:
    """A BOT of the run."""

    key: str
    bot: Bot
    total: int = 0  # jobs that were appended
    seen: int = 0  # cursor of its results
    jobs: dict[int, JobAtServer] = field(default_factory=dict)  # by number
    begun: int = 0  # so many of its jobs were given to hosts
    has_jobs: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None


class NodeLots:
    """All BOTs of a run.  Events come from its threads, through `told`."""

    def __init__(self, session: Session, run: str, name: str, told: Told, say: Say) -> None:
        self._session, self._run, self._name = session, run, name
        self._told, self._say = told, say
        self._lots: dict[str, NodeLot] = {}
        self._of_node: dict[str, dict[int, tuple[NodeLot, int]]] = {}  # lot and number, by process
        self._lock = threading.RLock()
        self._is_over = threading.Event()
        self._looker: threading.Thread | None = None

    # --- what the run asks for

    def lot(self, shape: Shape) -> NodeLot:
        """The BOT of a shape, which is made when it is needed first.  May raise GridbotError."""
        with self._lock:
            if shape.key not in self._lots:
                key = f"{self._run}-{shape.key}"[:64]
                bot = patiently(
                    lambda: self._session.submit(
                        name=self._name, idempotency_key=key, **submission_of(shape)
                    ),
                    lambda _: self._is_over.is_set(),
                    lambda error: self._say(f"{error}; waiting for the server"),
                )
                for warning in bot.warnings:
                    if "uploaded as an executable" not in warning:
                        self._say(f"BOT {bot.id}: {warning}")
                self._lots[shape.key] = NodeLot(shape.key, bot)
            return self._lots[shape.key]

    def reserve(self, lot: NodeLot, node: str, jobs: Sequence[ShapedJob]) -> int:
        """Keep places for a node's jobs; return the number of the first."""
        with self._lock:
            first = lot.total
            self.expect(lot, node, first, [job.destination for job in jobs])
            return first

    def expect(self, lot: NodeLot, node: str, first: int, to: Sequence[OutputPlace]) -> None:
        """Know of jobs of a node from a number on."""
        with self._lock:
            for process, destination in enumerate(to):
                lot.jobs[first + process] = JobAtServer(node, process, destination)
                self._of_node.setdefault(node, {})[process] = (lot, first + process)
            lot.total = max(lot.total, first + len(to))

    def append(self, lot: NodeLot, first: int, jobs: Sequence[ShapedJob]) -> None:
        """Send jobs to the server; to repeat it changes nothing.  May raise GridbotError."""
        for at in range(0, len(jobs), _MOST_AT_ONCE):
            some = jobs[at : at + _MOST_AT_ONCE]
            patiently(
                lambda some=some, at=at: lot.bot.append_each(  # type: ignore[misc]
                    [(job.values, job.files) for job in some], first + at
                ),
                lambda _: self._is_over.is_set(),
                lambda error: self._say(f"{error}; waiting for the server"),
            )
        self.follow(lot)

    def missing(self, lot: NodeLot) -> list[int]:
        """Numbers of the jobs that did not reach the server.  Raises NotFound."""
        there = self._count(lot)
        with self._lock:
            numbers = sorted(seq for seq in lot.jobs if seq >= there)
            lot.total = there + len(numbers)
        return numbers

    def lose_from(self, lot: NodeLot, first: int, why: str) -> list[JobRemoved]:
        """Forget the jobs from a number on that the server refused; later ones take their places.

        Those that it took nevertheless stay.
        """
        try:
            there = max(first, self._count(lot))
        except GridbotError:  # the BOT is gone
            there = first
        with self._lock:
            lost = [self._pop(lot, seq) for seq in sorted(lot.jobs) if seq >= there]
            lot.total = there
        if lot.jobs:
            self.follow(lot)
        return [JobRemoved(job.node, job.process, why) for job in lost]

    def _count(self, lot: NodeLot) -> int:
        return patiently(
            lambda: lot.bot.show().jobs_total,
            lambda _: self._is_over.is_set(),
            lambda error: self._say(f"{error}; waiting for the server"),
        )

    def remember(self, key: str, number: int) -> NodeLot:
        """A BOT that the journal names."""
        with self._lock:
            if key not in self._lots:
                self._lots[key] = NodeLot(key, self._session.bot(number))
            return self._lots[key]

    def known(self) -> list[NodeLot]:
        """All of them."""
        with self._lock:
            return list(self._lots.values())

    def forget(self, node: str, process: int, seen: int) -> None:
        """The journal tells of a job's end, and of the cursor of results that it had."""
        with self._lock:
            if (found := self._of_node.get(node, {}).get(process)) is not None:
                lot, seq = found
                self._pop(lot, seq)
                lot.seen = max(lot.seen, seen)

    def cancel(self, node: str, processes: Sequence[int]) -> bool:
        """Cancel jobs of a node; their ends are told.  False if none of them is here."""
        with self._lock:
            places = self._of_node.get(node, {})
            found = [places[process] for process in processes if process in places]
            for lot, seq in found:
                lot.jobs[seq].is_cancelled = True
        by_lot: dict[str, tuple[NodeLot, list[int]]] = {}
        for lot, seq in found:
            by_lot.setdefault(lot.key, (lot, []))[1].append(seq)
        for lot, numbers in by_lot.values():
            self._cancel(lot, numbers)
        return bool(found)

    def _cancel(self, lot: NodeLot, numbers: list[int]) -> None:
        """Cancel jobs of a BOT; while the server is away, they end by themselves."""
        try:
            state = patiently(lambda: lot.bot.cancel(numbers), lambda waited: waited > _CANCEL)
        except NotFound:
            self._lose(lot, f"BOT {lot.bot.id} is gone")
        except GridbotError as error:
            self._say(f"jobs of BOT {lot.bot.id} are not cancelled: {error}")
        else:
            for seq in state.document.get("cancelled", ()):
                self._left(lot, seq, "")

    def stop(self, cancel: bool) -> None:
        """Close the BOTs, and cancel what is left in them; threads end by themselves."""
        self._is_over.set()
        for lot in self.known():
            lot.has_jobs.set()
            try:
                patiently(
                    lot.bot.cancel if cancel and lot.jobs else lot.bot.close,
                    lambda waited: waited > 10.0,
                )
            except GridbotError as error:
                self._say(f"BOT {lot.bot.id} is not closed: {error}")

    def pause(self) -> None:
        """Let the jobs go on without us."""
        self._is_over.set()

    # --- what the threads do

    def follow(self, lot: NodeLot) -> None:
        """See that the results of a BOT are taken."""
        with self._lock:
            lot.has_jobs.set()
            if lot.thread is None:
                lot.thread = threading.Thread(target=self._follow, args=(lot,), daemon=True)
                lot.thread.start()
            if self._looker is None:
                self._looker = threading.Thread(target=self._look, daemon=True)
                self._looker.start()

    def _follow(self, lot: NodeLot) -> None:
        while not self._is_over.is_set():
            lot.has_jobs.wait()
            try:
                self._take_results(lot)
            except BotHeld as error:
                self._hold(lot, str(error))
                self._is_over.wait(_PATIENCE)
            except ServerAway:
                self._is_over.wait(1.0)
            except OSError as error:
                self._say(f"an output cannot be written: {error}")
                self._is_over.wait(_PATIENCE)
            except GridbotError as error:
                self._lose(lot, str(error))

    def _take_results(self, lot: NodeLot) -> None:
        for result in lot.bot.results(follow=True, after=lot.seen):
            if self._is_over.is_set():
                return
            self._release(lot)
            self._take(lot, result)
            lot.seen = result.n
            with self._lock:
                if not lot.jobs:
                    lot.has_jobs.clear()
                    return
        if lot.jobs:
            self._lose(lot, f"BOT {lot.bot.id} was cancelled")

    def _lose(self, lot: NodeLot, why: str) -> None:
        with self._lock:
            lost = list(lot.jobs)
            lot.has_jobs.clear()
        for seq in lost:
            self._left(lot, seq, why)

    def _hold(self, lot: NodeLot, why: str) -> None:
        """Tell that jobs are held; each once."""
        self._say(f"BOT {lot.bot.id} is held: {why}; gridbot bot resume {lot.bot.id}")
        with self._lock:
            held = [job for job in lot.jobs.values() if not job.is_held]
            for job in held:
                job.is_held = True
        for job in held:
            self._told(JobHeld(job.node, job.process, why))

    def _release(self, lot: NodeLot) -> None:
        """Results come again."""
        with self._lock:
            released = [job for job in lot.jobs.values() if job.is_held]
            for job in released:
                job.is_held = False
        for job in released:
            self._told(JobReleased(job.node, job.process))

    def _take(self, lot: NodeLot, result: Result) -> None:
        with self._lock:
            job = lot.jobs.get(result.seq)
        if job is None:
            return
        if result.state == "failed" and self._is_host_fault(result, job):
            job.faults += 1
            try:
                patiently(lambda: lot.bot.retry([result.seq]), lambda _: self._is_over.is_set())
            except (Refused, NotFound):
                job.faults = _HOST_FAULTS + 1
            else:
                return
        self._save(lot, result, job)
        if not job.is_cancelled:
            self._told(JobStarted(job.node, job.process))
        self._told_left(lot, result.seq, _end_of(result, job))

    @staticmethod
    def _is_host_fault(result: Result, job: JobAtServer) -> bool:
        """Whether no program of ours ended, so that HTCondor would run the job again."""
        has_ended = result.exit_code is not None or result.signal is not None
        said = has_ended or job.is_cancelled or result.reason == _CANCELLED
        return not said and job.faults < _HOST_FAULTS

    def _save(self, lot: NodeLot, result: Result, job: JobAtServer) -> None:
        """Write what a job returned; of one that died, what its host kept of what it printed."""
        for name, output in result.outputs.items():
            if (path := job.destination.path(name)) is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                patiently(lambda output=output, path=path: output.save(path), lambda _: False)  # type: ignore[misc]
        if result.state == "failed" and result.reason != _CANCELLED:
            lines = [*lot.bot.logs(result.seq)]
            for name in ("stdout", "stderr"):
                path = job.destination.path(name)
                if path is not None and lines and name not in result.outputs:
                    path.write_text(str(lines[-1].get(name) or ""), encoding="utf-8")

    def _left(self, lot: NodeLot, seq: int, why: str) -> None:
        """A job was removed, or is lost."""
        with self._lock:
            job = lot.jobs.get(seq)
        if job is not None:
            self._told_left(lot, seq, JobRemoved(job.node, job.process, why))

    def _told_left(self, lot: NodeLot, seq: int, event: RunEvent) -> None:
        with self._lock:
            if seq not in lot.jobs:
                return
            self._pop(lot, seq)
        self._told(event)

    def _pop(self, lot: NodeLot, seq: int) -> JobAtServer:
        """Know no more of a job; the caller holds the lock."""
        job = lot.jobs.pop(seq)
        places = self._of_node[job.node]
        if places.get(job.process) == (lot, seq):
            del places[job.process]
            if not places:
                del self._of_node[job.node]
        return job

    def _look(self) -> None:
        """See which jobs have begun: of each BOT, those that wait no more, the oldest first."""
        while not self._is_over.wait(_LOOK_SECONDS):
            for lot in self.known():
                if lot.jobs and lot.begun < lot.total:
                    self._look_at(lot)

    def _look_at(self, lot: NodeLot) -> None:
        with self._lock:
            total = lot.total
        try:
            state = lot.bot.show()
        except GridbotError:
            time.sleep(1.0)
            return
        if not state.is_held:
            self._release(lot)
        document = state.document
        appended = min(total, int(document["jobs_total"]))
        begun = appended - int(document["jobs_waiting"])
        with self._lock:
            new = [job for seq, job in lot.jobs.items() if lot.begun <= seq < begun]
            lot.begun = max(lot.begun, begun)
        for job in new:
            self._told(JobStarted(job.node, job.process))


def _end_of(result: Result, job: JobAtServer) -> RunEvent:
    if result.state != "failed" or result.exit_code:
        return JobEnded(job.node, job.process, result.exit_code or 0, result.n)
    if result.signal is not None and result.reason != _CANCELLED:
        return JobEnded(job.node, job.process, -result.signal, result.n)
    reason = "" if result.reason == _CANCELLED else result.reason
    return JobRemoved(job.node, job.process, reason, result.n)
