"""Exponential back-off with jitter; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

BASE_SECONDS = 1.0
MOST_SECONDS = 3600.0
# A revoked client retries a few times a day, in case it was revoked by mistake.
REVOKED_SECONDS = 4 * 3600.0
_MOST_FLOOR_SECONDS = 86_400.0


def delay_seconds(failures: int, chance: float, floor: float = 0.0) -> float:
    """Seconds to wait after `failures` in a row; `chance` is uniform in [0, 1).

    BOINC's rule, min(max, base·2^n)·U(0.5, 1), bounds the load on a server that comes back.
    `floor`, the server's Retry-After, is the least wait; it is spread too, because all clients
    got the same number.
    """
    # 2**1000 overflows a float; no delay needs more than 30 doublings.
    own = min(MOST_SECONDS, BASE_SECONDS * 2.0 ** min(failures, 30)) * (0.5 + chance / 2)
    return max(own, min(floor, _MOST_FLOOR_SECONDS) * (1 + chance / 4))


def poll_seconds(asked: float, chance: float) -> float:
    """Seconds until the next request: those that the server asked for, with jitter."""
    return asked * (0.75 + chance / 2)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Failures in a row, wall-clock time of the next try, and the last error."""

    failures: int = 0
    until: float = 0.0
    error: str = ""

    def failed(self, error: str, now: float, chance: float, floor: float = 0.0) -> Self:
        """State after one more failure."""
        wait = delay_seconds(self.failures, chance, floor)
        return type(self)(self.failures + 1, now + wait, error)

    def remaining(self, now: float) -> float:
        """Seconds until the next try, bounded even if the clock was set back."""
        return min(max(self.until - now, 0.0), _MOST_FLOOR_SECONDS * 1.25)
