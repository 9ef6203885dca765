"""Who may check a stranger's answer: a crew drawn by lot, not the first that asks.

Theory of operation
===================

A check is evidence if the liars could not choose who makes it.  Those that answer at once also ask
first: a tenth of all crews would give nearly all checks, most of them to each other.  So each
further copy of a stranger's job is kept for one crew, drawn among all that ask for work, and drawn
anew when that crew did not come for it in time, then among those that work for the BOT: others may
be unable to run it.  So colluding crews meet as often as their share of all crews says, however
fast they are.

    drawn for    when                                               who may have the copy
    ANYBODY      a few crews work: a lot would tell nothing;        whoever asks
                 or draws are in vain, and no other crew works for the BOT
    a crew       there are more                                     that crew
    NOBODY       many crews came just now: maybe they are a ring,   vouched for machines
                 or the job's holders are all that are there

Machines of the BOT's owner, and dedicated ones, may always have it.  Pure.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

from gridbot_server.matching.track_record import PRIOR

ANYBODY, NOBODY = 0, -1
NEW_SECONDS = 30.0
# So many crews check each other as they ask: if a tenth of them lies, that is one, without help.
FEW = int(1 / PRIOR)
# While more crews than this are new for each other one, nothing is drawn.
_NEW_PART = 0.1
# After so many draws in vain, of a job for whose BOT no other crew works, few can run it at all.
MOST_VAIN = 5
# A crew has this many times the usual pause between two requests of a host to come for a copy.
_PAUSES = 3.0
_LEAST_SECONDS, _MOST_SECONDS = 10.0, 3600.0


class Elector(NamedTuple):
    """A crew that asks for work."""

    crew: str
    owner: int
    is_new: bool = False  # it came less than NEW_SECONDS ago


@lru_cache(10_000)
def mark(crew: str) -> int:
    """Return the number by which a crew is drawn; never ANYBODY or NOBODY."""
    digest = hashlib.blake2b(crew.encode(), digest_size=8).digest()
    return (int.from_bytes(digest) >> 2) + 1


def are_gathering(crews: int, new: int) -> bool:
    """Whether so many of the crews came less than NEW_SECONDS ago that they may be a ring."""
    return new > _NEW_PART * (crews - new)


class Electorate:
    """Crews among which checks are drawn; a draw costs the same among a hundred thousand."""

    def __init__(self, electors: Sequence[Elector]) -> None:
        self._electors = electors
        new = sum(elector.is_new for elector in electors)
        self._are_few = len(electors) <= FEW
        self._are_new = are_gathering(len(electors), new)

    def draw(
        self,
        holders: Collection[int],
        chance: float,
        vain: int = 0,
        workers: Sequence[Elector] = (),
    ) -> int:
        """Return for whom a copy is kept, of a job that these owners hold already.

        `chance` is a random number, from 0 to less than 1.  So many draws were in `vain` before:
        after the first, it is drawn among `workers`, those of the crews that work for the BOT.
        """
        if self._are_few:
            return ANYBODY
        if self._are_new:
            return NOBODY
        found = _pick(workers, holders, chance) if vain else None
        if found is None and vain >= MOST_VAIN:
            return ANYBODY
        found = found or _pick(self._electors, holders, chance)
        return mark(found.crew) if found else NOBODY


def _pick(electors: Sequence[Elector], holders: Collection[int], chance: float) -> Elector | None:
    """Return one at random; where that holds the job, the next one that does not."""
    first = int(chance * len(electors))
    around = itertools.chain(range(first, len(electors)), range(first))
    return next((electors[place] for place in around if electors[place].owner not in holders), None)


def patience(pause: float) -> float:
    """Return the seconds for which a copy is kept for the crew drawn.

    `pause` (s) is what usually lies between two requests of a host; 0 if nobody knows.
    """
    return min(_MOST_SECONDS, max(_LEAST_SECONDS, _PAUSES * pause))
