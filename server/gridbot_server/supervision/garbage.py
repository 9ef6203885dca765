"""How often a process of the server looks for garbage in cycles."""

from __future__ import annotations

import gc

# Objects more than before: a batch of host requests holds thousands that live until it is
# committed, and looking through them all again and again finds nothing.
_MORE_OBJECTS = 20_000


def collect_rarely() -> None:
    """Look for it rarely, and never among what is loaded by now: call it when that is all."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_MORE_OBJECTS, 20, 20)
