"""How the scheduling buffer is shared among BOTs, and who is in the tail (paper 6.2, 6.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

REFILL = 0.25  # a segment is refilled when this part of it is empty: no tiny ranges


@dataclass(frozen=True, slots=True)
class SlotClaim:
    """One BOT's claim on the buffer: jobs it could put in, and jobs taken since the last pass."""

    unsent: int
    taken: int


def segments(slots: int, demands: Mapping[int, SlotClaim]) -> dict[int, int]:
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


def worth_filling(lacking: int, segment: int, left: int) -> bool:
    """Return whether to bring the `lacking` jobs of a segment now: a good part of it, or the last.

    Otherwise every request would be followed by a tiny refill.
    """
    return lacking > 0 and (lacking >= REFILL * segment or lacking == left)


def withdrawals(
    slots: int, room: int, there: Mapping[int, int], absent: Mapping[int, int]
) -> dict[int, int]:
    """Return how many jobs to take out of which segments, so that every BOT can have its 1/n.

    `there` is what each BOT has in the buffer, `absent` what it could put in beside.  BOTs that
    came when there were few others hold more than that part.  What they hold beyond it goes only
    to fill another BOT's part, never for spare slots, which follow demand and change all the time.
    """
    fair = slots // max(1, len(there))
    lacking = {bot: min(fair - count, absent[bot]) for bot, count in there.items()}
    wanted = sum(lack for bot, lack in lacking.items() if worth_filling(lack, fair, absent[bot]))
    wanted -= room
    given: dict[int, int] = {}
    for bot, count in sorted(there.items(), key=lambda item: -item[1]):
        most = min(wanted, count - fair)
        if most > 0:
            given[bot] = most
            wanted -= most
    return given


def is_tail(unsent: int, running: int, segment: int, threshold: int | None) -> bool:
    """Return whether a BOT is in its tail phase: few unsent jobs (paper section 6.3).

    Without a threshold of its own that is fewer than the BOT's segment of the buffer and than
    twice its running replicas, so that a small BOT on few hosts does not begin with its tail.
    """
    if threshold is not None:
        return unsent < threshold or unsent == 0
    return unsent == 0 or unsent < min(segment, 2 * running)
