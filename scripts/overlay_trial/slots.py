"""How many slots are taken over time.  Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

Curve = Sequence[tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Life:
    """From when to when something ran, in seconds since 1970."""

    begun: float
    ended: float


def curve(lives: Iterable[Life]) -> Curve:
    """Give the times at which others run than before, in order, and how many run from then on."""
    steps = sorted(step for life in lives for step in ((life.begun, 1), (life.ended, -1)))
    counts = accumulate(change for _, change in steps)
    return [(moment, count) for (moment, _), count in zip(steps, counts, strict=True)]


def most(found: Curve) -> int:
    """Give the most that ran at one time."""
    return max((count for _, count in found), default=0)


def reached(found: Curve, number: int) -> float | None:
    """Give the first time at which so many ran; None if that never was."""
    return next((moment for moment, count in found if count >= number), None)


def at(found: Curve, moment: float) -> int:
    """Tell how many run at a moment, from it on."""
    before = bisect_right(found, moment, key=lambda step: step[0])
    return found[before - 1][1] if before else 0
