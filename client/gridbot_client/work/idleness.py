"""Tells a replica that computes from one that hangs: by the CPU time of its processes.  Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Idleness:
    """Watches one replica: low when a whole window passed with less than the least share of a CPU.

    A pilot ends such a replica and leaves: a grid's slot must not stay idle (paper section 5).
    """

    window_seconds: float
    least_share: float
    _begun: float | None = None
    _at_begin: float = 0.0
    _last: float = 0.0

    def is_low(self, now: float, cpu_seconds: float) -> bool:
        """Take in a measurement: CPU seconds used so far.  Time is any clock's.

        A sum that fell begins a new window: processes that nobody waited for took with them what
        they had used, and nobody knows how many others came and went unseen.
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
