"""Web processes, feeders and the process of the cycles; each may die and starts anew."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import psycopg

from gridbot_server.buffer.layout import BufferDamaged
from gridbot_server.cycles import deadline, replication, transitioner
from gridbot_server.cycles.parts import BotPart
from gridbot_server.cycles.silence import Silence
from gridbot_server.dispatch.batch import SQL
from gridbot_server.dispatch.dispatcher import Dispatcher
from gridbot_server.dispatch.replies import ReplyParts
from gridbot_server.dispatch.transaction import transact
from gridbot_server.errors import DatabaseAway, ServerError
from gridbot_server.feeder.feeding import Feeder
from gridbot_server.matching.spending import Spending
from gridbot_server.storage.rows import fetch_only_value
from gridbot_simulator.nemesis.buffer import FaultyBuffer
from gridbot_simulator.nemesis.clients import SentRequest
from gridbot_simulator.nemesis.points import Points
from gridbot_simulator.nemesis.store import FaultyStore

SILENT_SECONDS = 30.0
_TRANSITIONERS = 2

Answer = ReplyParts | ServerError


class Clocks(Protocol):
    """The times that processes go by."""

    def steady(self) -> float:
        """Seconds that go on whatever is set."""

    def wall(self) -> float:
        """Seconds since the epoch, by a clock that may be set."""


@dataclass(slots=True)
class SharedWorld:
    """What all processes share."""

    store: FaultyStore
    points: Points
    clocks: Clocks
    chance: random.Random


@dataclass(slots=True)
class ServerMachine:
    """A machine of the server, with its buffer."""

    name: str
    buffer: FaultyBuffer | None = None  # None: the feeder has made none yet
    dead: set[int] = field(default_factory=set)  # generations of web processes

    def damage(self) -> None:
        """Damage the buffer."""
        if self.buffer is not None:
            self.buffer.is_damaged = True

    def discard(self) -> None:
        """Forget the buffer: the feeder makes a new one."""
        self.buffer = None


class Process(Protocol):
    """Something that makes a pass now and then."""

    name: str

    def step(self) -> None:
        """Make a pass."""

    def die(self) -> None:
        """Lose all that is in memory; the next pass starts anew."""


class WebProcess:
    """A web process; it serves what has arrived as one batch, as `dispatch/engine.py` does."""

    def __init__(
        self,
        name: str,
        around: SharedWorld,
        site: ServerMachine,
        generations: Callable[[], int],
        served: Callable[[SentRequest, Answer], None],
        tell: Callable[[SentRequest, Answer], None],
    ) -> None:
        """`served` is called right after the commit, `tell` when a reply leaves."""
        self.name, self._around, self._site = name, around, site
        self._generations, self._served, self._tell = generations, served, tell
        self.arrived: list[SentRequest] = []
        self._dispatcher: Dispatcher | None = None
        self._epoch: int | None = None  # that of the connection; None: there is none

    def die(self) -> None:
        """Die with the requests that are being served; those that wait are lost, too."""
        if self._dispatcher is not None:
            self._site.dead.add(self._dispatcher.generation)
        self._dispatcher, self._epoch = None, None
        self.arrived = []

    def step(self) -> None:
        """Serve a batch: of each client its first request."""
        if self._dispatcher is None:
            around = self._around
            self._dispatcher = Dispatcher(
                self._generations(), clock=around.clocks.steady, wall=around.clocks.wall,
                chance=around.chance,
            )  # fmt: skip
        now = self._around.clocks.steady()
        batch: dict[bytes, SentRequest] = {}
        for message in self.arrived:
            if message.due <= now:
                batch.setdefault(message.token, message)
        self.arrived = [item for item in self.arrived if batch.get(item.token) is not item]
        if batch:
            self._serve(batch)

    def _serve(self, batch: Mapping[bytes, SentRequest]) -> None:
        """Serve requests; a lost connection is opened again, once, before giving up."""
        for _ in range(2):
            try:
                answers = self._transact(batch)
            except (psycopg.OperationalError, BufferDamaged) as error:
                self._epoch = None
                if isinstance(error, BufferDamaged):
                    self._site.discard()
            else:
                break
        else:
            answers = dict.fromkeys(batch, DatabaseAway("the database does not answer"))
        now = self._around.clocks.steady()
        for token, message in batch.items():
            if _may_wait(answers[token]) and now < message.due + message.request.wait:
                self.arrived.append(replace(message, was_parked=True))
                continue
            self._around.points.cross("reply")
            self._tell(message, answers[token])

    def _transact(self, batch: Mapping[bytes, SentRequest]) -> Mapping[bytes, Answer]:
        store, dispatcher = self._around.store, self._dispatcher
        assert dispatcher is not None, "it was made before"
        if self._epoch is None:
            self._epoch = fetch_only_value(store, int, SQL["epoch"])
        requests = {token: message.request for token, message in batch.items()}
        before = store.commits
        parked = {token for token, message in batch.items() if message.was_parked}
        answers = transact(store, self._site.buffer, dispatcher, requests, parked).answers
        if store.commits == before + 1:  # nobody has gone between
            for token, message in batch.items():
                self._served(message, answers[token])
        for answer in answers.values():
            if isinstance(answer, ReplyParts):
                answer.epoch = self._epoch
        return answers


def _may_wait(answer: Answer) -> bool:
    return isinstance(answer, ReplyParts) and answer.may_wait


class FeederProcess:
    """The feeder of a machine."""

    def __init__(
        self,
        name: str,
        around: SharedWorld,
        site: ServerMachine,
        make: Callable[[ServerMachine], FaultyBuffer],
    ) -> None:
        """`make` makes a new buffer."""
        self.name, self._around, self._site, self._make = name, around, site, make
        self._feeder: Feeder | None = None
        self._buffer: FaultyBuffer | None = None

    def die(self) -> None:
        """Lose all but the buffer."""
        self._feeder = None

    def step(self) -> None:
        """Make a pass; a lost connection and a lost buffer begin anew with the next one."""
        try:
            if self._feeder is None or self._site.buffer is not self._buffer:
                self._start()
            assert self._feeder is not None, "it was started"
            self._feeder.run_once(self._around.clocks.steady())
        except psycopg.OperationalError:
            self._feeder = None
        except BufferDamaged:
            self._feeder = None
            self._site.discard()

    def _start(self) -> None:
        if self._site.buffer is None:
            self._site.buffer = self._make(self._site)
        self._buffer = self._site.buffer
        feeder = Feeder(self._around.store, self._buffer, self._around.chance)
        feeder.forget_claims()
        self._feeder = feeder


class Cycle:
    """One cycle of the process that leads."""

    def __init__(self, name: str, once: Callable[[], object], die: Callable[[], None]) -> None:
        self.name, self._once, self._die = name, once, die

    def step(self) -> None:
        """Make a pass; with a lost connection the next one begins anew."""
        try:
            self._once()
        except psycopg.OperationalError:
            self._die()

    def die(self) -> None:
        """Die with all cycles."""
        self._die()


class Cycles:
    """The process of the cycles."""

    def __init__(self, around: SharedWorld) -> None:
        self._around = around
        self.die()

    def die(self) -> None:
        """Forget what cycles remember."""
        self._deadlines = deadline.DeadlineCycle()
        self._silence = Silence(SILENT_SECONDS)
        self._spending = Spending()

    def all(self) -> Sequence[Cycle]:
        """All of them."""
        store, clocks = self._around.store, self._around.clocks
        passes: dict[str, Callable[[], object]] = {
            f"transitioner {number + 1}": self._transitions(BotPart(number, _TRANSITIONERS))
            for number in range(_TRANSITIONERS)
        } | {
            "deadlines": lambda: self._deadlines.run_once(store, clocks.steady()),
            "silence": lambda: self._silence.run_once(store, clocks.steady()),
            "sweep": lambda: deadline.sweep_cancelled(store),
            "replication": lambda: replication.run_once(
                store, clocks.wall(), self._spending, self._around.chance
            ),
        }
        return [Cycle(name, once, self.die) for name, once in passes.items()]

    def _transitions(self, part: BotPart) -> Callable[[], object]:
        return lambda: transitioner.run_once(self._around.store, part)
