"""How well the order in which BOTs came to their end follows their Rank; pure."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

# Of a BOT's jobs, those left when a time is noted: the paper's 1000, 500, 100, 50 and 0 of its
# 1,200, for BOTs of a fifth of that size.
PARTS = (200 / 240, 100 / 240, 20 / 240, 10 / 240, 0.0)


@dataclass(frozen=True, slots=True)
class Course:
    """One BOT: when each of its jobs ended, in order."""

    rank: int
    ended: Sequence[float]

    def when_left(self, left: int) -> float:
        """When only `left` jobs were left."""
        return self.ended[len(self.ended) - left - 1]

    def left_at(self, moment: float) -> int:
        """How many jobs were left at a moment."""
        return len(self.ended) - bisect_right(self.ended, moment)


@dataclass(frozen=True, slots=True)
class Order:
    """The order of all BOTs at one level."""

    left: int
    spearman: float  # -1: the higher the Rank the earlier, without exception
    swapped: int  # pairs in which the lower Rank was earlier
    unexplained: int  # those of them that jobs in flight do not explain


def levels(jobs: int) -> list[int]:
    """Jobs left at each of the figure's curves."""
    return [round(part * jobs) for part in PARTS]


def order(courses: Sequence[Course], left: int, in_flight: int) -> Order:
    """Judge one level.

    A job of a BOT is sent only when no better one has unsent jobs.  So when the lower of two
    comes to a level first, the higher has nothing left but what was in flight: at most
    `in_flight` jobs, what all clients may hold together.  With more left, it was passed over.
    """
    by_rank = sorted(courses, key=lambda course: course.rank)
    swapped = [
        higher.left_at(lower.when_left(left))
        for lower, higher in combinations(by_rank, 2)
        if lower.when_left(left) < higher.when_left(left)
    ]
    times = [course.when_left(left) for course in by_rank]
    return Order(
        left=left,
        spearman=spearman([course.rank for course in by_rank], times),
        swapped=len(swapped),
        unexplained=sum(there > in_flight for there in swapped),
    )


def spearman(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Spearman's rank correlation; equal values share their mean place."""
    return statistics.correlation(_places(xs), _places(ys))


def _places(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    mean: Mapping[float, float] = {
        value: bisect_right(ordered, value) - (ordered.count(value) - 1) / 2 for value in values
    }
    return [mean[value] for value in values]
