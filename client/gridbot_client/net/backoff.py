"""How long to wait before trying again; a pure function of failures and chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

BASE_SECONDS = 1.0
MOST_SECONDS = 3600.0
# A revoked client asks some times a day, in case it was revoked by mistake.
REVOKED_SECONDS = 4 * 3600.0
_MOST_FLOOR_SECONDS = 86_400.0


def delay_seconds(failures: int, chance: float, floor: float = 0.0) -> float:
    """The wait after that many failures in a row; `chance` is uniform in [0, 1).

    BOINC's rule, min(max, base·2^n)·U(0.5, 1), which keeps a returning server's load
    bounded.  What the server asks for (`Retry-After`) is the least wait; it is spread too,
    because all its clients were told the same number.
    """
    # 2**1000 overflows a float; no delay needs more than 30 doublings.
    own = min(MOST_SECONDS, BASE_SECONDS * 2.0 ** min(failures, 30)) * (0.5 + chance / 2)
    return max(own, min(floor, _MOST_FLOOR_SECONDS) * (1 + chance / 4))


def poll_seconds(asked: float, chance: float) -> float:
    """The time until the next request, around what the server asked for."""
    return asked * (0.75 + chance / 2)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Failures in a row, the wall-clock time of the next try, and what went wrong last."""

    failures: int = 0
    until: float = 0.0
    error: str = ""

    def failed(self, error: str, now: float, chance: float, floor: float = 0.0) -> Self:
        """The state after one more failure."""
        wait = delay_seconds(self.failures, chance, floor)
        return type(self)(self.failures + 1, now + wait, error)

    def remaining(self, now: float) -> float:
        """Seconds until the next try; a clock that was set back cannot make it wait for years."""
        return min(max(self.until - now, 0.0), _MOST_FLOOR_SECONDS * 1.25)
