"""The end of growing BOTs, which take further jobs while they run."""

from __future__ import annotations

from collections.abc import Sequence

from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch_values

SQL = sql.load("growing.sql")

IDLE_DAYS = 30  # after its last job a growing BOT is closed: its user has gone
BY_OWNER = "by its owner"
FOR_IDLENESS = f"by the server, {IDLE_DAYS} days after its last job"


def close(conn: Connection, bots: Sequence[int], why: str) -> int:
    """Let growing BOTs take no more jobs; those whose jobs are all finished end.

    Returns how many were growing: others, also those closed before, stay as they are.
    """
    return conn.execute(SQL["close"], {"bots": list(bots), "why": why}).rowcount


def close_idle(conn: Connection, days: int = IDLE_DAYS, limit: int = 100) -> int:
    """Close up to `limit` growing BOTs that nobody has used for so long; return how many."""
    with conn.transaction():
        idle = fetch_values(conn, int, SQL["lock_idle"], {"days": days, "limit": limit})
        return close(conn, idle, FOR_IDLENESS) if idle else 0
