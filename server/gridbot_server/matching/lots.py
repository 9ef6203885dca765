"""Who may check a stranger's answer: a crew drawn by lot, not the first that asks.

Theory of operation
===================

A check is evidence if the liars could not choose who makes it.  Those that answer at once also ask
first: a tenth of all crews would give nearly all checks, most of them to each other.  So each
further copy of a stranger's job is kept for one crew, drawn among all that ask for work, and drawn
anew when that crew did not come for it in time.  Then colluding crews meet as often as their share
of all crews says, however fast they are.

    drawn for    when                                               who may have the copy
    ANYBODY      a few crews work: a lot would tell nothing         whoever asks
    a crew       there are more                                     that crew
    NOBODY       many crews came just now: maybe they are a ring,   vouched for machines
                 or the job's holders are all that are there

Machines of the BOT's owner, and dedicated ones, may always have it.  Pure.
"""

from __future__ import annotations

import hashlib
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


def draw(electors: Sequence[Elector], holders: Collection[int], chance: float) -> int:
    """Return for whom a copy is kept, of a job that these owners hold already.

    `chance` is a random number, from 0 to less than 1.
    """
    if len(electors) <= FEW:
        return ANYBODY
    new = sum(elector.is_new for elector in electors)
    able = [elector.crew for elector in electors if elector.owner not in holders]
    if new > _NEW_PART * (len(electors) - new) or not able:
        return NOBODY
    return mark(able[int(chance * len(able))])


def patience(pause: float) -> float:
    """Return the seconds for which a copy is kept for the crew drawn.

    `pause` (s) is what usually lies between two requests of a host; 0 if nobody knows.
    """
    return min(_MOST_SECONDS, max(_LEAST_SECONDS, _PAUSES * pause))
