"""Notices when the wall clock, by which the scheduler of the cycles goes, is set back."""

from __future__ import annotations

import time
from collections.abc import Callable

_STEP_SECONDS = 0.5  # what a clock is set back by between two looks; less is its adjustment


class ClockWatch:
    """Compares the wall clock with one that only goes forward, whenever it is asked."""

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._steady = wall, steady
        self._ahead = wall() - steady()

    def was_set_back(self) -> bool:
        """Whether the wall clock was set back since the last look."""
        before, self._ahead = self._ahead, self._wall() - self._steady()
        return self._ahead < before - _STEP_SECONDS
