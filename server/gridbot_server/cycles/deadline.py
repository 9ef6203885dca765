"""The deadline cycle: a replica whose deadline has passed is replaced (paper Algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gridbot_server.cycles.transitioner import WRITER
from gridbot_server.storage import sql
from gridbot_server.storage.counters import Counters
from gridbot_server.storage.db import Connection

SQL = sql.load("cycles.sql")


def run_once(conn: Connection, limit: int = 1000) -> int:
    """End up to `limit` expired leases and wake the transitioner; return how many.

    The transitioner makes the new replica, and a late answer may still win.
    """
    with conn.transaction():
        return give_back(conn, SQL["expire"], {"limit": limit})


def sweep_cancelled(conn: Connection, limit: int = 5000) -> int:
    """End leases and copies of cancelled BOTs; return how many."""
    with conn.transaction():
        count = give_back(conn, SQL["sweep_leases"], {"limit": limit})
        counters = Counters()
        for (bot,) in conn.execute(SQL["sweep_copies"], {"limit": limit}).fetchall():
            counters.add(bot, "unqueued")
            count += 1
        counters.write(conn, WRITER)
    return count


def give_back(conn: Connection, query: bytes, values: Mapping[str, Any]) -> int:
    """End the leases that the query ends and names by their BOTs, in the caller's transaction.

    Returns how many they were.
    """
    counters = Counters()
    gone = conn.execute(query, values).fetchall()
    for (bot,) in gone:
        counters.add(bot, "back")
    counters.write(conn, WRITER)
    return len(gone)
