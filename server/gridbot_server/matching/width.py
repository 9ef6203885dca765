"""How many replicas a host may have in progress or unjudged: as many as it has proven.

NumCpus is what a host says of itself.  Its width is what its answers have shown: it begins small,
grows by one with each valid answer, so that it doubles whenever all that it holds was good, and
falls with what fails.  All hosts of an owner share a width, too, and so do all nodes of a grid: new
identities of one owner begin with what the owner has left.  Pure.
"""

from __future__ import annotations

from typing import NamedTuple

START = 8.0
LEAST = 1.0
# From here on nothing is bounded, so that nobody need count.
FULL = 1024.0

# When unchecked answers fill this part of a width, some are checked, so that it is never full of
# what nobody will judge.
CROWDED_PART = 0.75

# What is left of a width after a replica that failed or was never answered, and after a wrong one.
_AFTER_FAILURE = 0.9
_AFTER_WRONG = 0.25


class WidthChange(NamedTuple):
    """What the verdicts of a batch do to a width: it is multiplied, then added to."""

    factor: float = 1.0
    growth: int = 0

    def after(self, valid: int, failed: int, wrong: int) -> WidthChange:
        """Return the change with the verdicts on further replicas of the host."""
        factor = self.factor * _AFTER_FAILURE**failed * _AFTER_WRONG**wrong
        return WidthChange(max(factor, 1e-6), self.growth + valid)


def changed(width: float, change: WidthChange) -> float:
    """Return a width after a change; the SQL of `rate_hosts` does the same."""
    return min(FULL, max(LEAST, width * change.factor + change.growth))


def room(width: float, unjudged: int) -> int:
    """Return how many further replicas a width leaves room for."""
    if width >= FULL:
        return int(FULL)
    return max(0, int(width) - unjudged)
