"""How long replicas of a BOT take on this machine, and so how many of them to hold at once."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict

from gridbot_client.protocol.messages import MAX_AHEAD, MAX_WANT, Ahead, Resources

# Work for so long is held beside what runs, or for two round trips to the server if those take
# longer: no core waits for a request.
LOOKAHEAD_SECONDS = 1.0
_ROUND_TRIPS = 2
_LEAST_SECONDS = 0.005  # no replica takes less
_FALLING = 0.1  # share by which an estimate follows a shorter replica


class Pace:
    """Estimates by BOT, from replicas that succeeded here.

    An estimate rises at once and falls slowly: to hold too few is cheaper than to hold what others
    could run.  Threads of replicas note what ended, while that of the client asks.
    """

    def __init__(self, cpus: int) -> None:
        self._cpus = cpus
        self._lock = threading.Lock()  # of the estimates
        self._estimates: OrderedDict[int, tuple[float, int]] = OrderedDict()  # seconds, slots
        self._round_trip = 0.0

    def ended(self, bot: int, resources: Resources, seconds: float) -> None:
        """Note a success."""
        seconds = max(seconds, _LEAST_SECONDS)
        with self._lock:
            before, _ = self._estimates.get(bot, (seconds, 1))
            if seconds < before:
                seconds = before + _FALLING * (seconds - before)
            self._estimates[bot] = seconds, max(1, self._cpus // resources.cpus)
            self._estimates.move_to_end(bot)
            while len(self._estimates) > MAX_AHEAD:
                self._estimates.popitem(last=False)

    def answered(self, seconds: float) -> None:
        """Note how long the server took to answer a request that did not wait for work."""
        longer = max(seconds, self._round_trip)
        self._round_trip = longer + _FALLING * (seconds - longer)

    def seconds(self, bot: int) -> float | None:
        """How long a replica of a BOT takes; None before the first success."""
        with self._lock:
            return self._estimates[bot][0] if bot in self._estimates else None

    @property
    def lookahead_seconds(self) -> float:
        """Seconds of work to hold beside what runs."""
        return max(LOOKAHEAD_SECONDS, _ROUND_TRIPS * self._round_trip)

    def ahead(self) -> tuple[Ahead, ...]:
        """The most replicas of each known BOT to hold at once, those that run included."""
        with self._lock:
            known = [*self._estimates.items()]
        return tuple(
            Ahead(bot, min(MAX_WANT, slots + math.ceil(slots * self.lookahead_seconds / seconds)))
            for bot, (seconds, slots) in known
        )
