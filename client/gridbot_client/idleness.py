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
    _cpu_seconds: float = 0.0

    def is_low(self, now: float, cpu_seconds: float) -> bool:
        """Take in a measurement: CPU seconds used so far.  Time is any clock's."""
        if self._begun is None:
            self._begun, self._cpu_seconds = now, cpu_seconds
            return False
        passed = now - self._begun
        if passed < self.window_seconds:
            return False
        used = cpu_seconds - self._cpu_seconds
        self._begun, self._cpu_seconds = now, cpu_seconds
        return used < self.least_share * passed
