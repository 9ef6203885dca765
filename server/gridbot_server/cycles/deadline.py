"""The deadline cycle: a replica whose deadline has passed is replaced (paper Algorithm 2)."""

from __future__ import annotations

from gridbot_server import sql
from gridbot_server.cycles.transitioner import WRITER
from gridbot_server.db import Connection
from gridbot_server.dispatch.batch import Counters

SQL = sql.load("cycles.sql")


def run_once(conn: Connection, limit: int = 1000) -> int:
    """End up to `limit` expired leases and wake the transitioner; return how many.

    The transitioner makes the new replica, and a late answer may still win.
    """
    return _end(conn, "expire", limit)


def sweep_cancelled(conn: Connection, limit: int = 5000) -> int:
    """End leases and copies of cancelled BOTs; return how many."""
    count = _end(conn, "sweep_leases", limit)
    with conn.transaction():
        counters = Counters()
        for (bot,) in conn.execute(SQL["sweep_copies"], {"limit": limit}).fetchall():
            counters.add(bot, "unqueued")
            count += 1
        counters.write(conn, WRITER)
    return count


def _end(conn: Connection, query: str, limit: int) -> int:
    with conn.transaction():
        counters = Counters()
        gone = conn.execute(SQL[query], {"limit": limit}).fetchall()
        for (bot,) in gone:
            counters.add(bot, "back")
        counters.write(conn, WRITER)
    return len(gone)
