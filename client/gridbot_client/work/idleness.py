"""Detects hanging replicas by the CPU time of their processes.  Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Idleness:
    """CPU watch of one replica: low if its CPU share over a whole window is below `share`.

    A pilot ends such a replica and exits, because a grid's slot must not stay idle (paper
    section 5).
    """

    window_seconds: float
    least_share: float
    _begun: float | None = None
    _at_begin: float = 0.0
    _last: float = 0.0

    def is_low(self, now: float, cpu_seconds: float) -> bool:
        """Add a measurement, the CPU seconds used so far; True if the last window was low.

        `now` is of any monotonic clock.  A sum that falls begins a new window, because processes
        that ended without being waited for take their CPU time out of the sum.
        """
        has_fallen, self._last = cpu_seconds < self._last, cpu_seconds
        if self._begun is None or has_fallen:
            self._begun, self._at_begin = now, cpu_seconds
            return False
        passed, used = now - self._begun, cpu_seconds - self._at_begin
        if passed < self.window_seconds:
            return False
        self._begun, self._at_begin = now, cpu_seconds
        return used < self.least_share * passed
