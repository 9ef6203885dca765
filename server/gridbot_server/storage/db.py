"""Opens database connections and brings the schema up to date."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import psycopg
from psycopg.rows import TupleRow, scalar_row
from psycopg.types.json import set_json_loads

from gridbot_client.protocol import numbers
from gridbot_server.storage import sql

log = logging.getLogger(__name__)

# A machine may say that it has 1e300 of something; as an integer nobody could be told of it.
set_json_loads(numbers.loads)

Connection = psycopg.Connection[TupleRow]
Connect = Callable[[], AbstractContextManager[Connection]]  # borrows one

# Any constant will do, as long as nothing else locks it: two servers may start at once.
_MIGRATION_LOCK = 7_216_004_883

# A frozen process must not hold locks for ever; a query of ours takes milliseconds.
TIMEOUTS = (
    "-c idle_in_transaction_session_timeout=30s -c statement_timeout=120s -c lock_timeout=30s"
    " -c timezone=UTC -c tcp_keepalives_idle=30"
)


def connect(dsn: str, name: str = "gridbot", **options: Any) -> Connection:
    """Open a connection whose `application_name` is `name`; raise psycopg.OperationalError."""
    return psycopg.connect(
        dsn, application_name=name, options=TIMEOUTS, connect_timeout=10, **options
    )


def web_process(generation: int) -> str:
    """The name under which PostgreSQL lists the writer's connection of a web process."""
    return f"gridbot-web-{generation}"


def migrate(conn: Connection) -> list[str]:
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


def _refuse_newer(conn: Connection, newest: int) -> None:
    with conn.cursor(row_factory=scalar_row) as cursor:
        there = cursor.execute("SELECT max(version) FROM migration").fetchone()
    if there is not None and there > newest:
        raise RuntimeError(
            f"the database has schema {there}, this server knows {newest}: install a newer gridbot"
        )
