"""Admission control of requests for work: a bounded queue, and load shedding beyond it.

A web process queues enough requests for two full transactions: the one under way, and the next.
A longer queue would add delay and no throughput.  Requests beyond are shed at once, with 503 and
Retry-After.  Those that bring reports have a longer queue, so that finished work is safe before new
work is given out.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from gridbot_server.dispatch.engine import BATCH_REQUESTS

# Bounds of Retry-After.
LEAST_SECONDS, MOST_SECONDS = 5.0, 900.0

_MEASURED_SECONDS = 1.0
_ASSUMED_PER_SECOND = 250.0  # until the rate is measured
_LEAST_PER_SECOND = 1.0  # when the database hangs
# Share of the measured rate at which refused clients return; the rest is for new arrivals.
_RETURN_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Requests that may wait when one more arrives: without reports, and with them."""

    asking: int = 2 * BATCH_REQUESTS
    reporting: int = 4 * BATCH_REQUESTS


class Admission:
    """Counts the queue, measures the service rate, and spreads the return of refused clients.

    Refused clients form a virtual queue.  It is served at half the rate at which a busy process
    serves requests, and Retry-After is a client's time in it.  So a crowd returns spread over time,
    and finds room.
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
        self._refused, self._refused_at = 0.0, now  # length of the virtual queue, and its time

    def admits(self, has_reports: bool) -> bool:
        """Whether one more request may join the queue."""
        limits = self._limits
        return self._waiting < (limits.reporting if has_reports else limits.asking)

    def begin(self) -> None:
        """Count a request that was admitted."""
        self._waiting += 1

    def end(self, now: float) -> None:
        """Count a request that was answered."""
        self._waiting -= 1
        self._served += 1
        passed, transaction = now - self._busy_since, self._limits.asking // 2
        if self._waiting < transaction:
            # The rate of an idle process says nothing about its capacity.
            self._served, self._busy_since = 0, now
        elif passed >= _MEASURED_SECONDS and self._served >= transaction:
            self._per_second = max(self._served / passed, _LEAST_PER_SECOND)
            self._served, self._busy_since = 0, now

    def retry_seconds(self, now: float) -> int:
        """Add a refused client to the virtual queue; return its Retry-After in seconds."""
        rate, most = _RETURN_SHARE * self._per_second, MOST_SECONDS - LEAST_SECONDS
        self._refused = max(self._refused - rate * (now - self._refused_at), 0.0) + 1
        self._refused_at, wait = now, self._refused / rate
        if wait > most:  # jitter over the whole range: the same longest wait would bunch them again
            self._refused, wait = most * rate, most * self._chance()
        return math.ceil(LEAST_SECONDS + wait)
