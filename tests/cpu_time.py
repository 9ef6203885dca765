"""CPU time that something takes, for claims about its bounds."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def cpu_time() -> Iterator[Callable[[], float]]:
    """Give what tells the CPU seconds since here; no time goes into other tests' garbage.

    The collector may run within, but it looks only at what is made within.
    """
    gc.freeze()
    begun = time.process_time()
    try:
        yield lambda: time.process_time() - begun
    finally:
        gc.unfreeze()
