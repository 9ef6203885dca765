"""Opens database connections and brings the schema up to date."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, LiteralString, Protocol

import psycopg
from psycopg.rows import TupleRow, scalar_row
from psycopg.types.json import set_json_loads

from gridbot_client.protocol import numbers
from gridbot_server.storage import sql

log = logging.getLogger(__name__)

# A machine may say that it has 1e300 of something; as an integer nobody could be told of it.
set_json_loads(numbers.loads)

PostgresConnection = psycopg.Connection[TupleRow]


class Rows(Protocol):
    """What a statement gave."""

    @property
    def rowcount(self) -> int:
        """How many rows it gave, or changed."""

    @property
    def description(self) -> Sequence[Column] | None:
        """The columns that it gave; None where it gave none, or where they have no names."""

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, None after the last one."""

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows that follow."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Give one row after the other."""


class Column(Protocol):
    """One of the columns of a statement's rows."""

    @property
    def name(self) -> str:
        """What it is called."""


class DatabaseConnection(Protocol):
    """What decisions ask of a database: named statements, in transactions.

    PostgreSQL's connections are such, and so is the store of the simulator, which is in memory.
    """

    def execute(
        self,
        query: LiteralString | bytes,
        params: Mapping[str, Any] | Sequence[Any] | None = None,
        /,
    ) -> Rows:
        """Run a statement."""

    def transaction(self) -> AbstractContextManager[object]:
        """Do all or nothing; inside of another one, a part of that."""


Connection = DatabaseConnection  # as nearly all of the server knows it


# Where PostgreSQL says that it waits no more for a standby; its words follow its language.
_WAITING = "SyncRepWaitForLSN"
_LOOKS = 5
_POOLED = (
    "the database is behind a pooler that gives each transaction another session (pgbouncer:"
    " pool_mode = transaction); GridBot keeps locks and listens in its sessions: name PostgreSQL"
    " itself in --dsn, or let pool_mode be session, with ignore_startup_parameters = options"
)

# A host of a DSN that is frozen must not keep the next from being asked.  And a machine that no
# packet reaches any more says nothing: without these, TCP would wait for minutes.  So long a break
# of the network is taken for its end; whoever asked asks again, on a new connection.
REACHED: Mapping[str, Any] = {
    "connect_timeout": 3,  # s, for each host
    "tcp_user_timeout": 3000,  # ms without an acknowledgement of what was sent
    "keepalives_idle": 2,  # s of silence until TCP asks whether the other side is there
    "keepalives_interval": 1,
    "keepalives_count": 2,
}


class NotReplicated(psycopg.OperationalError):
    """A commit that is here and may be on no standby: it must not be acknowledged."""


class PooledByTransaction(psycopg.OperationalError):
    """A database behind a pooler that gives each transaction another session."""


class SafeConnection(psycopg.Connection[TupleRow]):
    """A connection on which a commit ends well only if it is as safe as it was to be.

    A commit whose wait for its synchronous standby is cancelled, by an operator or a shutdown,
    ends with a warning alone.  Here it is an error, and whoever asked tries again: the retry
    finds the rows, and waits for the standby anew.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._is_unsafe = False
        self.add_notice_handler(self._note)

    def _note(self, said: psycopg.errors.Diagnostic) -> None:
        self._is_unsafe |= said.source_function == _WAITING

    def wait(self, *arguments: Any, **options: Any) -> Any:
        """Wait for the end of an operation; raise NotReplicated if it is not safe."""
        found = super().wait(*arguments, **options)
        if self._is_unsafe:
            self._is_unsafe = False
            raise NotReplicated("the commit waits no more for a standby, which may lack it")
        return found


Connect = Callable[[], AbstractContextManager[PostgresConnection]]  # borrows one

# Any constant will do, as long as nothing else locks it: two servers may start at once.
_MIGRATION_LOCK = 7_216_004_883

# A frozen process must not hold locks for ever; a query of ours takes milliseconds.
TIMEOUTS = (
    "-c idle_in_transaction_session_timeout=30s -c statement_timeout=120s -c lock_timeout=30s"
    " -c timezone=UTC -c tcp_keepalives_idle=30"
)


def connect(dsn: str, name: str = "gridbot", **options: Any) -> PostgresConnection:
    """Open a connection whose `application_name` is `name`; raise psycopg.OperationalError."""
    return SafeConnection.connect(
        dsn, application_name=name, options=TIMEOUTS, **REACHED, **options
    )


def refuse_pooling_by_transaction(dsn: str) -> None:
    """Raise PooledByTransaction where two sessions share a process of the database, or change it.

    Locks, listening and time limits of a session would then be anybody's.
    """
    try:
        with connect(dsn, autocommit=True) as one, connect(dsn, autocommit=True) as other:
            ours = {one.execute("SELECT pg_backend_pid()").fetchone() for _ in range(_LOOKS)}
            others = {other.execute("SELECT pg_backend_pid()").fetchone() for _ in range(_LOOKS)}
    except psycopg.OperationalError as error:
        if "unsupported startup parameter" in str(error):
            raise PooledByTransaction(_POOLED) from None
        raise
    if len(ours) != 1 or len(ours | others) != 2:
        raise PooledByTransaction(_POOLED)


def web_process(generation: int) -> str:
    """The name under which PostgreSQL lists the writer's connection of a web process."""
    return f"gridbot-web-{generation}"


def migrate(conn: PostgresConnection) -> list[str]:
    """Apply the migrations that are missing, each in its own transaction; return their names.

    Forward only.  A server that starts on a database newer than itself refuses to.
    """
    applied = []
    with conn.transaction():
        conn.execute("SELECT pg_advisory_xact_lock(%s)", [_MIGRATION_LOCK])
        conn.execute(
            "CREATE TABLE IF NOT EXISTS migration (version int PRIMARY KEY,"
            " name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
        )
    known = sql.migrations()
    for version, name, text in known:
        with conn.transaction():
            conn.execute("SELECT pg_advisory_xact_lock(%s)", [_MIGRATION_LOCK])
            if conn.execute("SELECT 1 FROM migration WHERE version = %s", [version]).fetchone():
                continue
            # An index of a large table takes longer than any query of ours.
            conn.execute("SET LOCAL statement_timeout = 0")
            conn.execute(text)
            conn.execute("INSERT INTO migration (version, name) VALUES (%s, %s)", [version, name])
            applied.append(name)
            log.info("migration %s applied", name)
    _refuse_newer(conn, max(version for version, _, _ in known))
    return applied


def _refuse_newer(conn: PostgresConnection, newest: int) -> None:
    with conn.cursor(row_factory=scalar_row) as cursor:
        there = cursor.execute("SELECT max(version) FROM migration").fetchone()
    if there is not None and there > newest:
        raise RuntimeError(
            f"the database has schema {there}, this server knows {newest}: install a newer gridbot"
        )
