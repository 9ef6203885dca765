"""When the next attempt is made; pure."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_DOUBLINGS = 64  # beyond which a float may overflow, and any interval is at its most


@dataclass(frozen=True)
class BackOff:
    """Pauses that grow: from `least` seconds by `factor` to `most`, each times U(1, 1 + spread).

    The defaults are those of the fault tolerant shell.
    """

    least: float = 1.0
    most: float = 3600.0
    factor: float = 2.0
    spread: float = 1.0

    def seconds(self, failures: int, chance: float) -> float:
        """Pause after the n-th failure, from 1 on; `chance` is uniform in [0, 1)."""
        grown = self.least * self.factor ** min(failures - 1, _MOST_DOUBLINGS)
        return min(self.most, grown) * (1 + self.spread * chance)


@dataclass(frozen=True)
class RetryLimits:
    """How often something is tried, and at what intervals.

    With `every` attempts begin that many seconds after each other, or at once if one took longer;
    without it the pauses grow.
    """

    times: int | None = None
    every: float | None = None
    back_off: BackOff = BackOff()

    def pause(self, failures: int, took: float, chance: float) -> float | None:
        """Seconds until the next attempt, after one that took `took`; None if there is none."""
        if self.times is not None and failures >= self.times:
            return None
        if self.every is not None:
            return max(0.0, self.every - took)
        return self.back_off.seconds(failures, chance)
