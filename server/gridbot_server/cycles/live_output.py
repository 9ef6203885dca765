"""Output that nobody follows any more goes away."""

from __future__ import annotations

from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection

SQL = sql.load("live_output.sql")


def run_once(conn: Connection) -> int:
    """Forget what was followed; return how many streams."""
    return conn.execute(SQL["forget"]).rowcount
