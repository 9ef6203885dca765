"""The database in memory, as decisions see one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, LiteralString

from gridbot_simulator.store import cycles, dispatch, feeder, learning, moves
from gridbot_simulator.store.statements import Answer, Statements
from gridbot_simulator.store.tables import Tables

SUBJECTS: tuple[Statements, ...] = (
    dispatch.STATEMENTS, dispatch.BANS, dispatch.LIVE_OUTPUT, dispatch.SUSPENSION,
    moves.STATEMENTS, feeder.STATEMENTS, feeder.PROOFS, feeder.SIBLINGS, cycles.STATEMENTS,
    learning.COUNTERS, learning.CREDIT, learning.BRAKE, learning.NOTABLE,
)  # fmt: skip
ANSWERS: Mapping[bytes, Answer] = MappingProxyType(
    {text: answer for subject in SUBJECTS for text, answer in subject.answers.items()}
)
"""The function of each named statement, by its text."""


class StoreBroken(RuntimeError):
    """A transaction failed: what it wrote stays written, so the tables are of no use any more."""


class MemoryRows(list[tuple[Any, ...]]):
    """What a statement gave; `rowcount` is -1 where nobody counts what it changed."""

    description = None

    def __init__(self, rows: Sequence[tuple[Any, ...]], changed: int) -> None:
        super().__init__(rows)
        self.rowcount = changed
        self._next = iter(rows)

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, None after the last."""
        return next(self._next, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows."""
        return self


class MemoryStore:
    """A `DatabaseConnection` over tables in memory.

    Nothing is undone: who simulates faults needs more.  After an exception inside a transaction
    each further statement raises StoreBroken.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._is_broken = False

    def execute(
        self,
        query: LiteralString | bytes,
        params: Mapping[str, Any] | Sequence[Any] | None = None,
        /,
    ) -> MemoryRows:
        """Run a named statement; raise NotImplementedError for one that has no function."""
        return self._run(ANSWERS, query, params)

    def _run(
        self,
        answers: Mapping[bytes, Answer],
        query: LiteralString | bytes,
        params: Mapping[str, Any] | Sequence[Any] | None,
    ) -> MemoryRows:
        if self._is_broken:
            raise StoreBroken("an earlier transaction failed, and is not undone")
        answer = answers.get(query) if isinstance(query, bytes) else None
        if answer is None:
            text = query.decode() if isinstance(query, bytes) else query
            raise NotImplementedError(f"the simulator has no function for the statement\n{text}")
        assert params is None or isinstance(params, Mapping), "values of statements have names"
        found = answer(self.tables, **(params or {}))
        if found is None or isinstance(found, int):
            return MemoryRows((), -1 if found is None else found)
        return MemoryRows(found, len(found))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Do all, or break."""
        try:
            yield
        except BaseException:
            self._is_broken = True
            raise
