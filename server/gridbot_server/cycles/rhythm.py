"""How often cycles make passes: as scheduled while any of them finds something, else seldom.

A pass that finds nothing has its price, too.  What is urgent is told: of reports the transitioner
hears at once, and what it finds brings all others back to their schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable

IDLE_SECONDS = 1.0  # between passes of a cycle, at least, while no cycle finds anything
_ACTIVE_SECONDS = 3.0  # so long after the last thing found

# So much found in one pass calls for the next one at once.  Less waits for its turn: under a steady
# load, passes without a pause would each find very little, at nearly the price of a full one.
MUCH = 1000
# A pass for which reports call does not follow the last one at once, but after a pause that is so
# many times as long as that took: a long one while there is much to do, since the next pass then
# finds more at little more than the price of this one; a short one for who waits for a few jobs.
_REST, _SHORT_REST = 19, 3
_FEW = 16  # found in a pass


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


class Turns:
    """When the transitioner makes passes: in its rhythm, or once it has rested if reports call.

    Times are in seconds of one monotonic clock.
    """

    def __init__(self, scheduled: float, rhythm: Rhythm) -> None:
        """`scheduled` is the longest pause while there is something to do."""
        self._scheduled, self._rhythm = scheduled, rhythm
        self._ended_at = self._rests_until = -math.inf
        self.is_called = False  # since the last pass

    @property
    def due_at(self) -> float:
        """When the next pass is due; earlier than it was said before if something was found."""
        if self.is_called:
            return self._rests_until
        return self._ended_at + self._rhythm.pause(self._scheduled)

    def call(self) -> None:
        """Let the next pass follow as soon as the last one has been rested from."""
        self.is_called = True

    def note_pass(self, began: float, ended: float, found: int) -> None:
        """Note a pass, which has found so much."""
        share = _REST if found > _FEW else _SHORT_REST
        rest = min(self._scheduled, share * (ended - began))
        self.is_called = found >= MUCH
        self._ended_at, self._rests_until = ended, ended if self.is_called else ended + rest
