"""Output that nobody follows or looks at any more goes away."""

from __future__ import annotations

from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection

SQL = sql.load("live_output.sql")


def run_once(conn: Connection) -> int:
    """Forget what was followed or shown; return how many streams."""
    return sum(conn.execute(SQL[name]).rowcount for name in ("forget", "forget_shown"))
