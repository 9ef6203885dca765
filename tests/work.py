"""Work that something takes, counted in function calls: a measure that no busy machine changes."""

from __future__ import annotations

from collections.abc import Callable
from cProfile import Profile


def calls(work: Callable[[], object]) -> int:
    """Count the calls of functions, Python's and built-in ones, that `work` makes."""
    profile = Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())
