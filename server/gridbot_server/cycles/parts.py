"""Divides the BOTs among the transitioners of a database, processes of one or several machines.

They find each other by their sessions in PostgreSQL, so nobody says how many there are: each takes
the BOTs whose number fits its place in the list.  One that dies leaves the list at once, one that
is frozen after `SILENT_SECONDS`.  While they see different lists, two may take the same BOT: the
locks of its row and of its wake-ups let them take turns, so only time is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch_one

SQL = sql.load("cycles.sql")

LOOK_SECONDS = 1.0  # between two looks at the list
SILENT_SECONDS = 5.0  # who says nothing to the database for so long is frozen


class BotPart(NamedTuple):
    """The BOTs of which `number` is left when theirs is divided by `of`."""

    number: int
    of: int


WHOLE = BotPart(0, 1)


class Division:
    """Which part is that of a transitioner; `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._part, self._looks_at = WHOLE, clock()

    def part(self, conn: Connection) -> BotPart:
        """Return the part of this connection, as of the last second."""
        now = self._clock()
        if now >= self._looks_at:
            self._part = fetch_one(conn, BotPart, SQL["part"], {"silent": SILENT_SECONDS}) or WHOLE
            self._looks_at = now + LOOK_SECONDS
        return self._part
