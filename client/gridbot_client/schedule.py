"""When the next request is due: at the server's interval, later after failures, or at once."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Sequence

from gridbot_client import agent
from gridbot_client.agent import LocalReplica
from gridbot_client.backoff import Backoff, poll_seconds
from gridbot_client.storage import Folder
from gridbot_client.work.slots import since_boot

# Mean time between requests at least, and how many may come at once: a job of a chain is got,
# reported and followed by the next within milliseconds.
LEAST_POLL_SECONDS, BURST = 0.06, 4


class RequestSchedule:
    """Times of requests, in seconds since boot; the back-off is on disk and outlives a restart."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._backoff = folder.backoff()
        self._ask_at = since_boot()
        self._asked_at = deque([0.0] * BURST, BURST)  # times of the last requests
        self._free_at = 0.0  # earliest time of the next one

    def due_in(self, items: Sequence[LocalReplica]) -> float:
        """Seconds until a request is due; zero or negative when it is due now."""
        now = since_boot()
        blocked_until = max(self._free_at, now + self._backoff.remaining(time.time()))
        return agent.request_in(items, self._ask_at, blocked_until, now)

    def hurry(self) -> None:
        """Make the next request due now, as `gridbot client resume` asks for."""
        self._folder.hurry_flag.unlink(missing_ok=True)
        self._reset()
        self._ask_at = since_boot()

    def asks(self) -> None:
        """Note that a request is made now."""
        self._asked_at.append(since_boot())

    def answered(self, asked_seconds: float, not_before: float = 0.0) -> bool:
        """Plan the request after an answer; return whether requests had failed before it.

        It follows after the seconds that the answer asked for, with jitter, and not before a time.
        """
        now = since_boot()
        poll = poll_seconds(asked_seconds, random.random())  # noqa: S311
        self._free_at = self._asked_at[0] + BURST * LEAST_POLL_SECONDS
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
        self._backoff = Backoff()
        self._folder.save_backoff(self._backoff)
