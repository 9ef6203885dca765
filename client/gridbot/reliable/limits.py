"""When the next attempt is made; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gridbot_client.backoff import BackOff

_NO_PAUSE = BackOff(least=0.0)


@dataclass(frozen=True)
class RetryLimits:
    """How often something is tried, and at what intervals.

    With `every` attempts begin that many seconds after each other, or at once if one took longer;
    without it the pauses grow.  Neither comes sooner than an error's `retry_after` allows, and
    there is no further attempt if that is more than `patience` seconds.
    """

    times: int | None
    every: float | None
    back_off: BackOff
    patience: float = math.inf

    def pause(self, error: Exception, failures: int, took: float, chance: float) -> float | None:
        """Seconds until the next attempt, after one that took `took`; None if there is none."""
        if self.times is not None and failures >= self.times:
            return None
        if getattr(error, "retry_after", 0.0) > self.patience:
            return None
        if self.every is None:
            return self.back_off.after(error, failures, chance)
        return max(self.every - took, _NO_PAUSE.after(error, failures, chance))
