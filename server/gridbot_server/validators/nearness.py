"""Whether all numbers of two lists are near, by functions that run in C."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from operator import sub, truediv

from gridbot_server.validators.spec import Tolerance

_EXACT_TO = float(1 << 53)  # whole numbers that a double holds


class NearLists:
    """Compares lists pair by pair, as `near.near` does with one pair."""

    def __init__(self, tolerance: Tolerance) -> None:
        self._is_close = partial(math.isclose, rel_tol=tolerance.rel, abs_tol=tolerance.abs)
        self._abs = tolerance.abs
        # Quotients of two doubles between these are certainly near; one rounding is far less.
        self._least = 1 - tolerance.rel + 1e-14
        self._most = 1 / self._least - 1e-14
        self._sum = tolerance.rel - 2e-14  # so is all whose distances from 1 have this sum

    def __call__(self, lefts: Sequence[float], rights: Sequence[float]) -> bool:
        """Tell; False if that is not sure."""
        if len(lefts) != len(rights):
            return False
        return self._are_within(lefts, rights) or self._are_in_proportion(lefts, rights)

    def _are_within(self, lefts: Sequence[float], rights: Sequence[float]) -> bool:
        """Whether all distances are certainly allowed."""
        if not (self._abs and lefts and _are_exact(lefts, rights)):
            return False
        distances: list[float] = list(map(sub, lefts, rights))
        return -self._abs <= min(distances) and max(distances) <= self._abs

    def _are_in_proportion(self, lefts: Sequence[float], rights: Sequence[float]) -> bool:
        """Whether all quotients are certainly allowed, or else the pairs are."""
        try:
            quotients = list(map(truediv, lefts, rights))
        except ZeroDivisionError:
            quotients = [
                one / other if other else float(one == other)
                for one, other in zip(lefts, rights, strict=True)
            ]
        if math.dist(quotients, [1.0] * len(quotients)) <= self._sum:
            return True
        least, most = self._least, self._most
        far = [at for at, quotient in enumerate(quotients) if not least <= quotient <= most]
        far_lefts, far_rights = [lefts[at] for at in far], [rights[at] for at in far]
        return _are_exact(far_lefts, far_rights) and all(map(self._is_close, far_lefts, far_rights))


def _are_exact(lefts: Sequence[float], rights: Sequence[float]) -> bool:
    """Whether none is a whole number that doubles do not hold, infinite or NaN."""
    return math.hypot(*lefts) + math.hypot(*rights) < _EXACT_TO
