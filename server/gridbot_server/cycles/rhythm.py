"""How often cycles make passes: as scheduled while any of them finds something, else seldom.

A pass that finds nothing has its price, too.  What is urgent is told: of reports the transitioner
hears at once, and what it finds brings all others back to their schedule.
"""

from __future__ import annotations

from collections.abc import Callable

IDLE_SECONDS = 1.0  # between passes of a cycle, at least, while no cycle finds anything
_ACTIVE_SECONDS = 3.0  # so long after the last thing found


class Rhythm:
    """The rhythm of all cycles of a process; `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._found_at = clock()

    @property
    def is_idle(self) -> bool:
        """Whether no cycle has found anything for a while."""
        return self._clock() - self._found_at > _ACTIVE_SECONDS

    def note_find(self) -> None:
        """Note that a cycle found something."""
        self._found_at = self._clock()

    def pause(self, scheduled: float) -> float:
        """Return the seconds until the next pass of a cycle that is scheduled with such a pause."""
        return max(scheduled, IDLE_SECONDS) if self.is_idle else scheduled
