"""Checkpoints of jobs that are decided go away."""

from __future__ import annotations

from datetime import datetime

from gridbot_server.storage.checkpoints import SQL, remove_unused
from gridbot_server.storage.db import Connection
from gridbot_server.storage.files import Store
from gridbot_server.storage.rows import fetch_values

_LIMIT = 1000


def run_once(conn: Connection, store: Store, now: datetime) -> int:
    """Drop the checkpoints that nobody goes on from; return how many."""
    gone = fetch_values(conn, bytes, SQL["over"], {"limit": _LIMIT})
    remove_unused(conn, store, gone, now)
    return len(gone)
