"""The jobs of a run at the server: a growing BOT for each shape, followed by its own thread."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Protocol, TypeVar

from gridbot.api.connection import patiently
from gridbot.api.errors import GridbotError, NotFound
from gridbot.api.inputs import InputFile
from gridbot.api.session import Session
from gridbot.dag.engine.events import JobEnded, JobRemoved
from gridbot.dag.run.following import Keep, LotFollower, Say, Told, save_outputs
from gridbot.dag.run.lot import LotTable, NodeLot, OutputTarget
from gridbot_client.protocol.messages import Scalar

T = TypeVar("T")

_MOST_AT_ONCE = 5000  # jobs in one append
_NOT_IN_GROUPS = re.compile(r"[^A-Za-z0-9._-]+")

Fields = Callable[[], Mapping[str, Any]]  # of a submission


class AppendedJob(Protocol):
    """A job as it is appended."""

    @property
    def values(self) -> Mapping[str, Scalar]:
        """Of the placeholders."""

    @property
    def files(self) -> Sequence[InputFile]:
        """Its own inputs."""

    @property
    def destination(self) -> OutputTarget:
        """Where what it returns goes."""


@dataclass(frozen=True)
class Append:
    """Jobs of a node on their way to the server, from a number on that is kept for them."""

    lot: NodeLot
    first: int
    jobs: Sequence[AppendedJob]


# Makes jobs of a node again, by their processes; they were journaled for this BOT.
Made = Callable[[NodeLot, str, Sequence[int]], Sequence[AppendedJob]]


class NodeLots:
    """All BOTs of a run.  Events come from threads, through `told`."""

    def __init__(
        self, session: Session, run: str, name: str, told: Told, say: Say,
        keep: Keep = save_outputs,
    ) -> None:  # fmt: skip
        self._session, self._run, self._name, self._say = session, run, name, say
        self.group = _group_of(name, run)
        self._table = LotTable()
        self._follower = LotFollower(self._table, told, say, keep)

    def lot(self, key: str, fields: Fields) -> NodeLot:
        """The BOT with this key, which is made when it is needed first.  May raise GridbotError."""
        with self._table.lock:
            if (found := self._table.get(key)) is not None:
                return found
            given = {
                "name": self._name,
                "idempotency_key": f"{self._run}-{key}"[:64],
                "group": self.group,
                **fields(),
            }
            bot = self._follower.patiently(partial(self._session.submit, **given))
            for warning in bot.warnings:
                if "uploaded as an executable" not in warning:
                    self._say(f"BOT {bot.id}: {warning}")
            return self._table.add(key, bot)

    def reserve(
        self, lot: NodeLot, node: str, jobs: Sequence[AppendedJob], process: int = 0
    ) -> int:
        """Keep places for jobs of a node; return the number of the first."""
        with self._table.lock:
            first = lot.total
            self.expect(lot, node, first, [job.destination for job in jobs], process)
            return first

    def expect(
        self, lot: NodeLot, node: str, first: int, to: Sequence[OutputTarget], process: int = 0
    ) -> None:
        """Know of jobs of a node, from a number and a process on."""
        self._table.expect(lot, node, first, to, process)

    def send(self, appends: Iterable[Append]) -> list[JobRemoved]:
        """Let jobs begin that are journaled: of one BOT in one request.

        Returns the ends of those that the server refused.
        """
        together: dict[NodeLot, tuple[int, list[AppendedJob]]] = {}
        for item in appends:
            together.setdefault(item.lot, (item.first, []))[1].extend(item.jobs)
        lost = list[JobRemoved]()
        for lot, (first, jobs) in together.items():
            try:
                self._append(lot, first, jobs)
            except GridbotError as error:
                lost += self._lose_from(lot, first, error)
        return lost

    def resume(self, made: Made) -> list[JobRemoved]:
        """Go on with the BOTs that the journal names: send the jobs that did not reach the server.

        Returns the ends of those that it refused, or whose BOT is gone.
        """
        lost = list[JobRemoved]()
        for lot in self.known():
            try:
                missing = self._missing(lot)
            except NotFound as error:
                lost += self._lose_from(lot, 0, error)
                continue
            if missing:
                by_node = groupby((lot.jobs[seq] for seq in missing), key=lambda job: job.node)
                jobs = [
                    job
                    for node, some in by_node
                    for job in made(lot, node, [one.process for one in some])
                ]
                lost += self.send([Append(lot, missing[0], jobs)])
            if lot.jobs:
                self.follow(lot)
        return lost

    def _append(self, lot: NodeLot, first: int, jobs: Sequence[AppendedJob]) -> None:
        """Send jobs to the server; to repeat it changes nothing.  May raise GridbotError."""
        for at in range(0, len(jobs), _MOST_AT_ONCE):
            some = [(job.values, job.files) for job in jobs[at : at + _MOST_AT_ONCE]]
            self._follower.patiently(partial(lot.bot.append_each, some, first + at))
        self.follow(lot)

    def _missing(self, lot: NodeLot) -> list[int]:
        """Numbers of the jobs that did not reach the server.  Raises NotFound."""
        there = self._count(lot)
        with self._table.lock:
            numbers = sorted(seq for seq in lot.jobs if seq >= there)
            lot.total = there + len(numbers)
        return numbers

    def _lose_from(self, lot: NodeLot, first: int, error: GridbotError) -> list[JobRemoved]:
        """Forget the jobs from a number on that the server refused; later ones take their places.

        Those that it took nevertheless stay.
        """
        self._say(f"BOT {lot.bot.id}: {error}")
        try:
            there = max(first, self._count(lot))
        except GridbotError:  # the BOT is gone
            there = first
        with self._table.lock:
            lost = [self._table.pop(lot, seq) for seq in sorted(lot.jobs) if seq >= there]
            lot.total = there
        if lot.jobs:
            self.follow(lot)
        for job in filter(None, lost):
            self._table.lose(job.node, job.process)
        return [JobRemoved(job.node, job.process, str(error)) for job in filter(None, lost)]

    def _count(self, lot: NodeLot) -> int:
        return self._follower.patiently(lot.bot.show).jobs_total

    def remember(self, key: str, number: int) -> NodeLot:
        """A BOT that the journal names."""
        return self._table.add(key, self._session.bot(number))

    def known(self) -> list[NodeLot]:
        """All of them."""
        return self._table.known()

    def place(self, node: str, process: int) -> tuple[int, int] | None:
        """BOT and number of a job, also of one that has ended; None if it is not at the server."""
        return self._table.place(node, process)

    def kept_for(self, node: str, process: int) -> tuple[int, int] | None:
        """BOT and number that were kept for a job, whether or not it reached the server."""
        return self._table.kept_for(node, process)

    def forget(self, event: JobEnded | JobRemoved) -> None:
        """The journal tells of a job's end, and of the cursor of results that it had."""
        if isinstance(event, JobRemoved) and event.reason and not event.seen:
            self._table.lose(event.node, event.process)  # the server may never have had it
        for lot, seq in self._table.find(event.node, (event.process,)):
            self._table.pop(lot, seq)
            lot.seen = max(lot.seen, event.seen)

    def follow(self, lot: NodeLot) -> None:
        """See that the results of a BOT are taken."""
        self._follower.follow(lot)

    def cancel(self, node: str, processes: Sequence[int]) -> bool:
        """Cancel jobs of a node; their ends are told.  False if none of them is here."""
        by_lot: dict[NodeLot, list[int]] = {}
        with self._table.lock:
            for lot, seq in self._table.find(node, processes):
                lot.jobs[seq].is_cancelled = True
                by_lot.setdefault(lot, []).append(seq)
        for lot, numbers in by_lot.items():
            self._follower.cancel(lot, numbers)
        return bool(by_lot)

    def stop(self, cancel: bool) -> None:
        """Close the BOTs, and cancel what is left in them; threads end by themselves."""
        self._follower.is_over.set()
        for lot in self.known():
            lot.has_jobs.set()
            try:
                patiently(lot.bot.cancel if cancel and lot.jobs else lot.bot.close, for_=10.0)
            except GridbotError as error:
                self._say(f"BOT {lot.bot.id} is not closed: {error}")

    def pause(self) -> None:
        """Let the jobs go on without us."""
        self._follower.is_over.set()


def _group_of(name: str, run: str) -> str:
    """The group of a run's BOTs: its name as far as groups may be called so, and its own number."""
    word = _NOT_IN_GROUPS.sub("-", name).strip("-._")[:50] or "run"
    return f"{word}-{run[:8]}"
