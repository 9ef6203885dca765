"""How long is waited after failures: exponential back-off with jitter; pure.

All that is tried again in the client, by `gridbot.reliable` and in the overlay takes its pauses
from `BackOff`.  Only the program that starts a pilot on a bare node cannot import it; the server
has rules of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

# A revoked client retries a few times a day, in case it was revoked by mistake.
REVOKED_SECONDS = 4 * 3600.0
_MOST_FLOOR_SECONDS = 86_400.0
_MOST_DOUBLINGS = 64  # beyond which a float may overflow, and any pause is at its most


@dataclass(frozen=True, slots=True)
class BackOff:
    """Pauses that grow: from `least` seconds by `factor` to `most`, each times U(1, 1 + spread).

    The defaults are those of the fault tolerant shell.
    """

    least: float = 1.0
    most: float = 3600.0
    factor: float = 2.0
    spread: float = 1.0

    def seconds(self, failures: int, chance: float = 0.0, floor: float = 0.0) -> float:
        """Pause after the n-th failure in a row; `chance` is uniform in [0, 1).

        `floor`, the server's Retry-After, is the least pause, up to a day.  It is spread too,
        because all who failed got the same number.
        """
        grown = self.least * self.factor ** min(failures - 1, _MOST_DOUBLINGS)
        own = min(self.most, grown) * (1 + self.spread * chance) if failures > 0 else 0.0
        return max(own, min(floor, _MOST_FLOOR_SECONDS) * (1 + chance / 4))

    def after(self, error: Exception, failures: int, chance: float) -> float:
        """Pause after an error, which may say by its `retry_after` what the server asks for."""
        return self.seconds(failures, chance, getattr(error, "retry_after", 0.0))


# BOINC's rule, min(3600, 2^n)·U(0.5, 1), bounds the load on a server that comes back.
REQUESTS = BackOff(least=0.5, most=1800.0)


def poll_seconds(asked: float, chance: float) -> float:
    """Seconds until the next request: those that the server asked for, with jitter."""
    return asked * (0.75 + chance / 2)


@dataclass(frozen=True, slots=True)
class FailedRequests:
    """Failures in a row, wall-clock time of the next try, and the last error."""

    failures: int = 0
    until: float = 0.0
    error: str = ""

    def failed(self, error: str, now: float, chance: float, floor: float = 0.0) -> Self:
        """State after one more failure."""
        failures = self.failures + 1
        wait = REQUESTS.seconds(failures, chance, floor)
        return type(self)(failures, now + wait, error)

    def remaining(self, now: float) -> float:
        """Seconds until the next try, bounded even if the clock was set back."""
        return min(max(self.until - now, 0.0), _MOST_FLOOR_SECONDS * 1.25)
