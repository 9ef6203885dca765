"""When the next request is due: at the server's interval, later after failures, or at once."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence

from gridbot_client import agent
from gridbot_client.agent import UNFINISHED, LocalReplica
from gridbot_client.backoff import FailedRequests, poll_seconds
from gridbot_client.boot import since_boot
from gridbot_client.storage import Folder

# Mean time between requests at least, and how many may come at once: a job of a chain is got,
# reported and followed by the next within milliseconds.  While there is work in hand, requests that
# come seldom carry several reports each; without any, somebody may wait for the last result.
LEAST_POLL_SECONDS, LEAST_IDLE_POLL_SECONDS, BURST = 0.06, 0.015, 4


class RequestSchedule:
    """Times of requests, in seconds since boot; the back-off is on disk and outlives a restart."""

    def __init__(self, folder: Folder, clock: Callable[[], float] = since_boot) -> None:
        self._folder, self._clock = folder, clock
        self._backoff = folder.backoff()
        self._ask_at = clock()
        self._asked_at = deque([0.0] * BURST, BURST)  # times of the last requests

    def due_in(self, items: Sequence[LocalReplica]) -> float:
        """Seconds until a request is due; zero or negative when it is due now."""
        now = self._clock()
        is_busy = any(item.stage in UNFINISHED for item in items)
        spacing = LEAST_POLL_SECONDS if is_busy else LEAST_IDLE_POLL_SECONDS
        free_at = self._asked_at[0] + BURST * spacing
        blocked_until = max(free_at, now + self._backoff.remaining(time.time()))
        return agent.request_in(items, self._ask_at, blocked_until, now)

    def hurry(self) -> None:
        """Make the next request due now, as `gridbot client resume` asks for."""
        self._folder.hurry_flag.unlink(missing_ok=True)
        self._reset()
        self._ask_at = self._clock()

    def asks(self) -> None:
        """Note that a request is made now."""
        self._asked_at.append(self._clock())

    def awaits(self, seconds: float) -> None:
        """Plan the next request for then, unless the one that the server keeps is answered."""
        self._ask_at = self._clock() + seconds

    def answered(self, asked_seconds: float, not_before: float = 0.0) -> bool:
        """Plan the request after an answer; return whether requests had failed before it.

        It follows after the seconds that the answer asked for, with jitter, and not before a time.
        """
        now = self._clock()
        poll = poll_seconds(asked_seconds, random.random())  # noqa: S311
        self._ask_at = max(now + poll, not_before)
        had_failed = self._backoff.failures > 0
        if had_failed:
            self._reset()
        return had_failed

    def failed(self, error: Exception, floor: float = 0.0) -> float:
        """Back off after a failure, by `floor` or its Retry-After at least; return the seconds."""
        floor = max(floor, getattr(error, "retry_after", 0.0))
        chance = random.random()  # noqa: S311
        self._backoff = self._backoff.failed(str(error), time.time(), chance, floor)
        self._folder.save_backoff(self._backoff)
        return self._backoff.remaining(time.time())

    def _reset(self) -> None:
        self._backoff = FailedRequests()
        self._folder.save_backoff(self._backoff)
