"""The database of the nemesis: transactions are undone, statements fail, backups are restored."""

from __future__ import annotations

import heapq
import io
import pickle  # of our own objects, in memory
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, LiteralString

import psycopg

from gridbot_client.protocol.manifest import Manifest
from gridbot_server.storage.states import State
from gridbot_simulator.nemesis import invariants
from gridbot_simulator.nemesis.broken import InvariantBroken
from gridbot_simulator.nemesis.points import Points
from gridbot_simulator.store.memory_store import SUBJECTS, MemoryRows, MemoryStore
from gridbot_simulator.store.statements import Answer, Rows, Statements
from gridbot_simulator.store.tables import StoredLease, Tables

# Statements that matter only where processes die, clocks are set and owners change their minds.
_CYCLES = Statements("cycles.sql")
_FEEDER = Statements("feeder.sql")
_MOVES = Statements("moves.sql")
_DISPATCH = Statements("dispatch.sql")

_CYCLES.has_no_effect("sweep_unjudged")


@_FEEDER.answers_to("backend_lives")
def _backend_lives(_tables: Tables, name: str) -> Rows:  # noqa: ARG001
    """A connection ends with its process."""
    return ()


@_DISPATCH.answers_to("epoch")
def _epoch(tables: Tables) -> Rows:
    """The epoch of the database."""
    return [(tables.epoch,)]


@_CYCLES.answers_to("extend_leases")
def _extend_leases(tables: Tables, seconds: float) -> None:
    """Let deadlines go with a clock that was set."""
    for lease in _leases(tables):
        lease.deadline += seconds
    tables.deadlines = [(lease.deadline, lease.name, lease.client) for lease in _leases(tables)]
    heapq.heapify(tables.deadlines)


@_MOVES.answers_to("bot_cancelled")
def _bot_cancelled(tables: Tables, limit: int, how: str, reason: str) -> Rows:
    """End the leases of BOTs that were cancelled."""
    found = [lease for lease in _leases(tables) if tables.bots[lease.bot].state == State.CANCELLED]
    return tables.unanswered(found[:limit], how, reason)


@_MOVES.answers_to("sweep_copies")
def _sweep_copies(tables: Tables, limit: int) -> Rows:
    """Drop the copies of BOTs that were cancelled."""
    found = [
        copy
        for bot, queue in tables.queues.items()
        if tables.bots[bot].state == State.CANCELLED
        for copy in queue.values()
    ][:limit]
    for copy in found:
        tables.unqueue(copy)
    return [(copy.bot,) for copy in found]


def _leases(tables: Tables) -> list[StoredLease]:
    return [lease for found in tables.leases.values() for lease in found.values()]


_HERE = (*SUBJECTS, _CYCLES, _FEEDER, _MOVES, _DISPATCH)
STATEMENTS: Mapping[str, bytes] = MappingProxyType(
    {f"{each.file}:{name}": text for each in _HERE for text, name in each.names.items()}
)
"""The texts of the statements that are answered, by their files and names."""
NAMES: Mapping[bytes, str] = MappingProxyType({text: name for name, text in STATEMENTS.items()})
"""The other way round."""
_ANSWERS = MappingProxyType(
    {text: answer for each in _HERE for text, answer in each.answers.items()}
)


_MANIFESTS: dict[str, Manifest] = {}  # by their texts


def _known_manifest(text: str) -> Manifest:
    return _MANIFESTS[text]


def _by_text(manifest: Manifest) -> tuple[Callable[[str], Manifest], tuple[str]]:
    """How a manifest is kept: it never changes."""
    text = manifest.text()
    _MANIFESTS.setdefault(text, manifest)
    return _known_manifest, (text,)


class FaultyStore(MemoryStore):
    """A `DatabaseConnection` of any number of processes, one of which does something at a time."""

    def __init__(self, tables: Tables, points: Points) -> None:
        super().__init__(tables)
        self._points = points
        self.is_away = False
        self.difference: InvariantBroken | None = None  # from another database, the first one
        self.commits = 0
        self.seen = Counter[str]()  # how often each statement ran, by file:name
        self.may_be_damaged = False  # a buffer is: transactions may have to be undone
        self._answers: dict[bytes, Answer] = dict(_ANSWERS)

    def answer(self, statement: str, answer: Answer) -> Answer:
        """Answer a statement, given as file:name, in another way; return what it was.

        Tests plant faults so.
        """
        text = STATEMENTS[statement]
        was, self._answers[text] = self._answers[text], answer
        return was

    def execute(
        self,
        query: LiteralString | bytes,
        params: Mapping[str, Any] | Sequence[Any] | None = None,
        /,
    ) -> MemoryRows:
        """Run a named statement, in a transaction of its own if there is none."""
        assert isinstance(query, bytes), "the server's statements have names"
        if not self._points.is_inside:
            with self.transaction():
                return self.execute(query, params)
        name = NAMES[query]
        self._points.cross(name, is_statement=True)
        self.seen[name] += 1
        return self._run(self._answers, query, params)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Do all or nothing."""
        if self._points.is_inside:
            yield
            return
        if self.is_away:
            raise psycopg.OperationalError("the database is away")
        self._points.cross("begin", is_statement=True)
        kept = self.snapshot() if self._points.may_strike or self.may_be_damaged else None
        self._points.is_inside = True
        try:
            with self._whole():
                yield
                self._points.cross("commit", is_statement=True)
        except BaseException:
            if kept is None:
                self._is_broken = True
            else:
                self.undo(kept)
            raise
        finally:
            self._points.is_inside = False
        self.commits += 1
        self._points.cross("commit", is_committed=True)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Do the same elsewhere, if there is such a place."""
        yield

    def check(self, *, idle: bool) -> None:
        """Raise InvariantBroken for what does not hold; `idle`: nothing is left to do."""
        invariants.check(self.tables, idle=idle)

    def snapshot(self) -> bytes:
        """Return all rows."""
        kept = io.BytesIO()
        pickler = pickle.Pickler(kept, pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = {Manifest: _by_text}
        pickler.dump(self.tables.__dict__)
        return kept.getvalue()

    def undo(self, kept: bytes) -> None:
        """Let rows be as they were; the time goes on."""
        rows = pickle.loads(kept)  # noqa: S301  # what `snapshot` made
        self.tables.__dict__.update(rows | {"now": self.tables.now})

    def restore(self, backup: bytes) -> None:
        """Restore a backup: a new epoch begins."""
        last = self.tables.epoch
        self.undo(backup)
        self.tables.epoch = last + 1
