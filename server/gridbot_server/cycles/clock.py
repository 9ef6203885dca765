"""Notices when clocks are set: back, or ahead of the time that went by.

The scheduler of the cycles goes by this machine's wall clock, deadlines by the database's.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch_only_value

SQL = sql.load("cycles.sql")

_STEP_SECONDS = 0.5  # what a clock is set back by between two looks; less is its adjustment


class ClockWatch:
    """Compares the wall clock with one that only goes forward, whenever it is asked."""

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._steady = wall, steady
        self._ahead = wall() - steady()

    def was_set_back(self) -> bool:
        """Whether the wall clock was set back since the last look."""
        before, self._ahead = self._ahead, self._wall() - self._steady()
        return self._ahead < before - _STEP_SECONDS


LEAP_SECONDS = 60.0  # ahead at once; less may be a slow answer of the database


class LeapWatch:
    """Compares the database's clock with the time that goes by, whenever it is asked."""

    def __init__(self) -> None:
        self._ahead: float | None = None

    def leap(self, conn: Connection, now: float) -> float:
        """Return by how many seconds the clock was set ahead since the last look; 0.0: not at all.

        `now` is a time that goes on while the machine sleeps, such as that since boot.
        """
        ahead = fetch_only_value(conn, float, SQL["clock"]) - now
        before, self._ahead = self._ahead, ahead
        leap = 0.0 if before is None else ahead - before
        return leap if leap > LEAP_SECONDS else 0.0
