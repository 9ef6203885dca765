"""Which requests for work a web process takes when more come than it can serve.

It keeps enough of them waiting for two full transactions: one that is under way, and the next.
More would only wait longer.  Requests that bring reports are taken beyond that, up to a bound, so
that finished work is safe before new work is asked for.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from gridbot_server.dispatch.engine import BATCH_REQUESTS

# What a refused client is asked to wait: at least, and at most.
LEAST_SECONDS, MOST_SECONDS = 5.0, 900.0

_MEASURED_SECONDS = 1.0
_ASSUMED_PER_SECOND = 250.0  # until it was measured
_LEAST_PER_SECOND = 1.0  # where the database is stuck
# Of what can be served, kept for those who were refused; the rest is for who comes meanwhile.
_ROW_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How many requests may wait when one more comes, without and with reports."""

    asking: int = 2 * BATCH_REQUESTS
    reporting: int = 4 * BATCH_REQUESTS


class Admission:
    """How many requests wait, how fast they are served, and when those refused are to come again.

    Clients that are refused stand in a row, and each is told when its turn comes at half the rate
    at which a busy process serves.  So they come back spread, and there is room for them.
    """

    def __init__(
        self,
        now: float,
        limits: QueueLimits = QueueLimits(),
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._limits, self._chance = limits, chance
        self._waiting = 0
        self._served, self._busy_since = 0, now
        self._per_second = _ASSUMED_PER_SECOND
        self._row, self._row_at = 0.0, now  # clients in the row, and when they were counted

    def admits(self, has_reports: bool) -> bool:
        """Whether one more request may wait."""
        limits = self._limits
        return self._waiting < (limits.reporting if has_reports else limits.asking)

    def begin(self) -> None:
        """A request was taken."""
        self._waiting += 1

    def end(self, now: float) -> None:
        """A request was answered."""
        self._waiting -= 1
        self._served += 1
        passed, transaction = now - self._busy_since, self._limits.asking // 2
        if self._waiting < transaction:
            # What is served while little is asked says nothing of what could be.
            self._served, self._busy_since = 0, now
        elif passed >= _MEASURED_SECONDS and self._served >= transaction:
            self._per_second = max(self._served / passed, _LEAST_PER_SECOND)
            self._served, self._busy_since = 0, now

    def retry_seconds(self, now: float) -> int:
        """Put a refused client into the row; return how long it is to stay away."""
        rate, room = _ROW_SHARE * self._per_second, MOST_SECONDS - LEAST_SECONDS
        self._row = max(self._row - rate * (now - self._row_at), 0.0) + 1
        self._row_at, place = now, self._row / rate
        if place > room:  # any place: if all were told the last one, all would come at once
            self._row, place = room * rate, room * self._chance()
        return math.ceil(LEAST_SECONDS + place)
