"""PostgreSQL beside the tables in memory: each statement runs in both, and must give the same.

Theory of operation
===================

The server's code reads what memory gave, and PostgreSQL must have given it, too, in any order.
Transactions begin, end and are undone in both.  Rows that stories add without a statement, because
other programs would (who joined, what was submitted or cancelled), are copied before the next
transaction.

PostgreSQL goes by the virtual clock: a schema that comes before its own has functions `now` and
`clock_timestamp`, which say what a setting of the session says.  Defaults of columns call them, as
the migrations run with that search path.

Where PostgreSQL may choose among equals, memory follows it: `claim_copies`.  Numbers of type `real`
agree in five digits, times within 0.1 ms.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import make_conninfo

from gridbot_server.storage import db
from gridbot_server.storage import invariants as of_database
from gridbot_simulator.nemesis.broken import InvariantBroken
from gridbot_simulator.nemesis.faults import Fault, FaultKind, draw
from gridbot_simulator.nemesis.points import Points
from gridbot_simulator.nemesis.store import NAMES, FaultyStore
from gridbot_simulator.store.memory_store import MemoryRows
from gridbot_simulator.store.statements import Answer
from gridbot_simulator.store.tables import StoredBot, StoredClient, StoredHost, StoredOwner, Tables

_CLOCK = """
CREATE SCHEMA virtual;
CREATE FUNCTION virtual.now() RETURNS timestamptz STABLE LANGUAGE sql AS
 $$ SELECT pg_catalog.to_timestamp(pg_catalog.current_setting('gridbot.now')::float8) $$;
CREATE FUNCTION virtual.clock_timestamp() RETURNS timestamptz STABLE LANGUAGE sql AS
 $$ SELECT virtual.now() $$;
"""
_SET_CLOCK = "SELECT set_config('gridbot.now', %s, false)"
_TABLES = """
SELECT format('%%I.%%I', schemaname, tablename) FROM pg_tables
 WHERE schemaname = 'virtual' AND tablename <> ALL(%s)
"""
_KEPT = ["migration", "setting", "history_sum", "asking_crews"]  # tables that migrations fill
NOT_MIRRORED = frozenset({FaultKind.RESTORE})
"""Faults that PostgreSQL cannot have here: setting a database back takes longer than a story."""

_RELATIVE, _TIME, _OLDEST_TIME = 1e-5, 1e-4, 1e9

Row = tuple[Any, ...]


def faults_of(seed: int) -> Sequence[Fault]:
    """The faults of a seed that PostgreSQL can have, too."""
    return [fault for fault in draw(seed) if fault.kind not in NOT_MIRRORED]


def make_database(dsn: str, name: str) -> str:
    """Make a migrated database that goes by a virtual clock; return its connection string."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"'.encode())
        admin.execute(f'ALTER DATABASE "{name}" SET search_path = virtual, pg_catalog'.encode())
        admin.execute(f"ALTER DATABASE \"{name}\" SET gridbot.now = '0'".encode())
    made = make_conninfo(dsn, dbname=name)
    with db.connect(made, autocommit=True) as conn:
        conn.execute(_CLOCK)
        db.migrate(conn)
    return made


class MirroredStore(FaultyStore):
    """A `FaultyStore` that lets PostgreSQL do all it does."""

    def __init__(self, tables: Tables, points: Points, conn: db.PostgresConnection) -> None:
        """Empty the database of `conn`, which `make_database` made."""
        super().__init__(tables, points)
        self._conn = conn
        self._brought = set[tuple[type, int]]()
        self._cancelled = set[int]()
        self._time: float | None = None
        names = ", ".join(name for (name,) in conn.execute(_TABLES, [_KEPT]).fetchall())
        conn.execute(f"TRUNCATE {names}".encode())
        conn.execute("UPDATE setting SET value = %s WHERE name = 'epoch'", [str(tables.epoch)])

    def check(self, *, idle: bool) -> None:
        """Check the tables in memory, and where nothing is left to do those of PostgreSQL, too."""
        super().check(idle=idle)
        if idle:
            self._set_clock()
            for found in of_database.check(self._conn, idle=True):
                raise InvariantBroken(found.name, found.examples)

    def restore(self, backup: bytes) -> None:
        """Raise NotImplementedError: memory alone can be set back."""
        raise NotImplementedError("PostgreSQL is not set back beside the tables in memory")

    @contextmanager
    def _whole(self) -> Iterator[None]:
        self._set_clock()
        self._bring()
        with self._conn.transaction():
            yield

    def _run(
        self,
        answers: Mapping[bytes, Answer],
        query: LiteralString | bytes,
        params: Mapping[str, Any] | Sequence[Any] | None,
    ) -> MemoryRows:
        assert isinstance(query, bytes), "the server's statements have names"
        assert params is None or isinstance(params, Mapping), "and so have their values"
        name = NAMES[query]
        found = self._conn.execute(query, _as_sent(name, params))
        there = found.fetchall() if found.description else []
        if name == "feeder.sql:claim_copies":
            self._prefer(there)
        here = super()._run(answers, query, params)
        is_compared = here.rowcount >= 0
        if is_compared and not (here.rowcount == found.rowcount and _are_alike(here, there)):
            told = InvariantBroken("postgresql_answers_alike", _difference(name, here, there))
            self.difference = self.difference or told
            raise told
        return here

    def _set_clock(self) -> None:
        if self._time != self.tables.now:
            self._time = self.tables.now
            self._conn.execute(_SET_CLOCK, [f"{self._time:.6f}"])

    def _prefer(self, chosen: Sequence[Row]) -> None:
        """Let memory choose these among copies that have the same right to be claimed."""
        for bot, queue in self.tables.queues.items():
            first = [name for name in (row[:3] for row in chosen) if name in queue]
            rest = [name for name in queue if name not in first]
            self.tables.queues[bot] = {name: queue[name] for name in (*first, *rest)}

    # ------------------------------------------------------------------- rows without statements

    def _bring(self) -> None:
        """Copy the rows that came without a statement."""
        tables = self.tables
        for rows in (tables.owners, tables.hosts, tables.clients, tables.bots):
            for row in rows.values():
                if (type(row), row.id) not in self._brought:
                    self._brought.add((type(row), row.id))
                    self._insert(row)
        for bot in tables.bots.values():
            if bot.state == "cancelled" and bot.id not in self._cancelled:
                self._cancelled.add(bot.id)
                self._conn.execute(
                    "UPDATE bot SET state = 'cancelled', ended_at = to_timestamp(%s),"
                    " policy_version = %s WHERE id = %s",
                    [bot.ended_at, bot.version, bot.id],
                )

    def _insert(self, row: StoredOwner | StoredHost | StoredClient | StoredBot) -> None:
        match row:
            case StoredOwner():
                self._add("owner", id=row.id, name=row.name, share=row.share)
            case StoredHost():
                self._add(
                    "host", id=row.id, identity=f"host {row.id}", owner=row.owner, grid=row.grid,
                    ad=json.dumps({"Name": row.name}), error_rate=row.error_rate, width=row.width,
                    mean_turnaround=row.mean_turnaround,
                )  # fmt: skip
            case StoredClient():
                self._add(
                    "client", id=row.id, hash=row.hash, host=row.host, owner=row.owner,
                    grid=row.grid, accepts=list(row.accepts), trusts=list(row.trusts), protocol=2,
                    dedicated=row.dedicated, seen_at=_moment(row.seen_at),
                )  # fmt: skip
            case StoredBot():
                self._add(
                    "bot", id=row.id, owner=row.owner, name=row.name, submit_key=str(row.id),
                    state="running", policy=row.policy, manifest=row.text, version=2,
                    owner_signature=bytes(64), size=row.size, quorum=row.quorum,
                    max_attempts=row.max_attempts, max_replicas=row.max_replicas,
                    watched=row.watched, created_at=_moment(row.created_at),
                )  # fmt: skip
                self._conn.execute(
                    "INSERT INTO job (bot, seq, args) SELECT %s, n, jsonb_build_object('i', n)"
                    " FROM generate_series(0, %s - 1) AS n",
                    [row.id, row.size],
                )

    def _add(self, table: str, **columns: object) -> None:
        names, places = ", ".join(columns), ", ".join(f"%({name})s" for name in columns)
        values = f"OVERRIDING SYSTEM VALUE VALUES ({places})"
        self._conn.execute(f"INSERT INTO {table} ({names}) {values}".encode(), columns)


# ------------------------------------------------------------------------------ comparison


def _as_sent(name: str, params: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The values of a statement as PostgreSQL wants them: it gave times, not numbers."""
    if params and name == "cycles.sql:silence":
        return {**params, "seen_at": [_moment(seconds) for seconds in params["seen_at"]]}
    return params


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _are_alike(here: Sequence[Row], there: Sequence[Row]) -> bool:
    """Whether both are the same rows, in any order."""
    pairs = zip(_ordered(here), _ordered(there), strict=False)
    return len(here) == len(there) and all(
        len(one) == len(other) and all(map(_is_alike, one, other)) for one, other in pairs
    )


def _ordered(rows: Sequence[Row]) -> list[Row]:
    """Rows as plain values, in an order that does not depend on their last digits."""
    return sorted((tuple(map(_plain, row)) for row in rows), key=_sorts_by)


def _sorts_by(row: Row) -> tuple[str, ...]:
    return tuple("" if isinstance(value, float) else repr(value) for value in row)


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.timestamp()
        case Decimal():
            return float(value)
        case memoryview() | bytearray():
            return bytes(value)
        case list() | tuple():
            return tuple(map(_plain, value))
        case _:
            return value


def _is_alike(one: Any, other: Any) -> bool:
    if not (isinstance(one, float) or isinstance(other, float)) or None in (one, other):
        return bool(one == other)
    if one > _OLDEST_TIME:
        return math.isclose(one, other, rel_tol=0, abs_tol=_TIME)
    return math.isclose(one, other, rel_tol=_RELATIVE, abs_tol=_TIME)


def _difference(name: str, here: MemoryRows, there: Sequence[Row]) -> str:
    mine, theirs = _ordered(here), _ordered(there)
    only_here = [row for row in mine if not any(_are_alike([row], [other]) for other in theirs)]
    only_there = [row for row in theirs if not any(_are_alike([row], [other]) for other in mine)]
    return (
        f"{name}: {len(mine)} rows in memory, {len(theirs)} in PostgreSQL; only in memory"
        f" {only_here[:2]}, only in PostgreSQL {only_there[:2]}"
    )
