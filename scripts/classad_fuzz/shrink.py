"""Make a case smaller as long as it shows what it shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .cases import Case

ATTEMPTS = 1500

T = TypeVar("T")


def shrunk(case: Case, found: T, shows: Callable[[Case], T | None]) -> tuple[Case, T]:
    """Return a smaller case and what `shows` gives for it, or else what was given.

    `shows` gives None for a case that shows nothing. It is asked a limited number of times.
    """
    left = ATTEMPTS
    while True:
        for less in case.smaller():
            if less.size >= case.size:
                continue
            left -= 1
            shown = shows(less)
            if shown is not None:
                case, found = less, shown
                break
            if left <= 0:
                return case, found
        else:
            return case, found
