"""Finds a short list of faults with which a seed still fails: delta debugging.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gridbot_simulator.nemesis.faults import Fault


def shrink(
    faults: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool], most: int = 400
) -> Sequence[Fault]:
    """Return faults of which none can be left out, unless it took more than `most` trials.

    As Zeller and Hildebrandt (2002): leave out ever smaller parts.
    """
    kept, parts, trials = list(faults), 2, 0
    while kept and trials < most:
        size = -(-len(kept) // parts)
        for at in range(0, len(kept), size):
            trials += 1
            fewer = kept[:at] + kept[at + size :]
            if fails(fewer):
                kept, parts = fewer, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(kept), 2 * parts)
    return kept
