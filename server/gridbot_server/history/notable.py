"""What is remembered beside the curves: an example of each failure, the slowest jobs, sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from gridbot_server.history.steps import HOUR, KEPT
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode

SQL = sql.load("notable.sql")
AUDIT = sql.load("audit.sql")

SLOWEST = 10  # jobs of a BOT
_MOST_EXAMPLES = 40  # of a BOT; reasons are what hosts say
_MOST_SESSIONS = 10_000  # that end in one pass

Row = Mapping[str, Any]


def keep_examples(conn: Connection, replicas: Sequence[Row]) -> None:
    """Remember failed replicas, each with a reason of its own: `bot`, `seq`, `replica`."""
    conn.execute(SQL["add_examples"], {"replicas": encode(replicas), "most": _MOST_EXAMPLES})


def keep_slowest(conn: Connection, jobs: Sequence[Row]) -> None:
    """Remember those of these valid replicas that are among the slowest of their BOTs.

    The caller's transaction holds the BOTs' rows.
    """
    conn.execute(SQL["add_slowest"], {"jobs": encode(jobs), "most": SLOWEST})


def end_sessions(conn: Connection) -> None:
    """Note which clients are not heard of any more."""
    conn.execute(SQL["end_sessions"], {"limit": _MOST_SESSIONS})


def forget(conn: Connection) -> None:
    """Forget after a year when machines were there, who changed what, and the logs of BOTs that
    are deleted.
    """
    old = {"age": timedelta(seconds=KEPT[HOUR]), "limit": _MOST_SESSIONS}
    for name in ("purge_sessions", "purge_examples", "purge_slowest"):
        conn.execute(SQL[name], old)
    conn.execute(AUDIT["purge"], old)
