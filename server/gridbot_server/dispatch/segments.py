"""How the scheduling buffer is shared among BOTs, and who is in the tail (paper 6.2, 6.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """One BOT's claim on the buffer: jobs it could put in, and jobs taken since the last pass."""

    unsent: int
    taken: int


def segments(slots: int, demands: Mapping[int, Demand]) -> dict[int, int]:
    """Return how many slots each BOT may fill: at least 1/n of them each.

    What a BOT cannot fill goes to the others in proportion to how fast they were emptied of late.
    """
    if not demands:
        return {}
    fair = slots // len(demands)
    shares = {bot: min(fair, demand.unsent) for bot, demand in demands.items()}
    spare = slots - sum(shares.values())
    hungry = {bot: demand for bot, demand in demands.items() if demand.unsent > shares[bot]}
    weight = sum(demand.taken + 1 for demand in hungry.values())
    for bot, demand in hungry.items():
        more = spare * (demand.taken + 1) // weight
        shares[bot] += min(more, demand.unsent - shares[bot])
    return shares


def is_tail(unsent: int, running: int, segment: int, threshold: int | None) -> bool:
    """Return whether a BOT is in its tail phase: few unsent jobs (paper section 6.3).

    Without a threshold of its own that is fewer than the BOT's segment of the buffer and than
    twice its running replicas, so that a small BOT on few hosts does not begin with its tail.
    """
    if threshold is not None:
        return unsent < threshold or unsent == 0
    return unsent == 0 or unsent < min(segment, 2 * running)
