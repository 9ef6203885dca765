"""The deadline cycle: a replica whose deadline has passed is replaced (paper Algorithm 2)."""

from __future__ import annotations

from gridbot_server.storage import moves, sql
from gridbot_server.storage.counters import CYCLES, Counters
from gridbot_server.storage.db import Connection
from gridbot_server.storage.states import Event

SQL = sql.load("cycles.sql")


def run_once(conn: Connection, limit: int = 1000) -> int:
    """End up to `limit` expired leases and wake the transitioner; return how many.

    The transitioner makes the new replica, and a late answer may still win.
    """
    with conn.transaction():
        return moves.relinquish(conn, Event.DEADLINE_PASSED, {"limit": limit})


def sweep_cancelled(conn: Connection, limit: int = 5000) -> int:
    """End leases and copies of cancelled BOTs; return how many."""
    values = {"limit": limit}
    with conn.transaction():
        counters = Counters()
        count = moves.end_unanswered(conn, Event.BOT_CANCELLED, values, counters)
        count += moves.drop_copies(conn, "sweep_copies", values, counters)
        counters.write(conn, CYCLES)
        conn.execute(SQL["sweep_unjudged"], values)
    return count
