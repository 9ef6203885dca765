"""CPU time that something takes, for claims about its bounds."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# What `_reference_work` takes on a core of 3 GHz that nothing else uses.
_REFERENCE_SECONDS = 0.010


@contextmanager
def cpu_time() -> Iterator[Callable[[], float]]:
    """Give what tells the CPU seconds since here, as they would be on a machine at rest.

    A core that is shared runs the same code in up to three times the CPU time, since caches and
    the core's other thread are shared, too.  So time is told in relation to that of a known piece
    of work, done just before.  No time goes into other tests' garbage: the collector may run
    within, but it looks only at what is made within.
    """
    gc.freeze()
    slowness = max(1.0, _seconds_of_reference() / _REFERENCE_SECONDS)
    begun = time.process_time()
    try:
        yield lambda: (time.process_time() - begun) / slowness
    finally:
        gc.unfreeze()


def _seconds_of_reference() -> float:
    begun = time.process_time()
    _reference_work()
    return time.process_time() - begun


def _reference_work() -> None:
    sums: dict[str, int] = {}
    for number in range(40_000):
        sums[f"{number % 97}"] = sums.get(f"{number % 89}", 0) + number
