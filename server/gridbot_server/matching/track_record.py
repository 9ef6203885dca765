"""What a host's checked answers have proven, for one program: whether one of its answers is sure.

An answer is checked when hosts of different owners have answered the same job.  A host's standing
is the number of its answers that proved right since it was caught last, and how often it was
caught.  From these comes a doubt: the probability that its next answer is wrong, by the bound of
Sarmenta ("Sabotage-tolerance mechanisms for volunteer computing systems", 2002, section 4): a host
that lies with any constant probability and passed k checks has wrong answers in at most 1 / (e k)
of its work, and a share of hosts lies.  Each time that a host is caught counts against it for good:
its prior doubles, and its right answers weigh half as much.  Pure.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from typing import NamedTuple

# The share of hosts that may lie, before anything is known of one.
PRIOR = 0.1
_MOST_PRIOR = 0.5
# What a host's own standing weighs that was trusted when it was caught.
_LONG_STREAK = 30
_MOST_CAUGHT = 12
# The share of a trusted host's answers that is checked: its least, and what falls with its streak.
LEAST_SHARE = 0.05
_SHARE = 0.6
# Checks that a trusted host must pass after an unchecked answer before that is sure.  Only answers
# that it gave later count, and of those the first ones of their jobs: who gave one could not know
# that it would be checked, while a further copy may be known by its place among the jobs.
SEASON = 3
# The least share of a host's open answers that is checked when they are settled.
_SHARE_OF_A_SAMPLE = 0.03
# What a ring of a quarter of all crews may count by itself: four fifths of what makes trusted.  The
# quarter is more than the prior, because liars who answer at once are there before most others.
_RING_STREAK = 29
_RING_SHARE = 0.25
# What a host may hold that was caught and has not made up for it; and until so little doubt is left
# that it could be trusted again.  Whatever it answers takes two copies: one that answers at once
# would have most of the work.
_DISTRUSTED_WIDTH = 2
_CAUGHT_WIDTH = 8
_LITTLE_DOUBT = 0.001


class TrackRecord(NamedTuple):
    """What is known of a host, or of its crew, for one program."""

    streak: int = 0  # answers that proved right since it was caught last
    caught: int = 0

    def after_right(self, answers: int = 1) -> TrackRecord:
        """Its standing after further answers that proved right."""
        return TrackRecord(self.streak + answers, self.caught)

    def after_wrong(self) -> TrackRecord:
        """Its standing after a wrong answer; who had been trusted is caught twice."""
        weight = 2 if self.streak >= _LONG_STREAK else 1
        return TrackRecord(0, min(_MOST_CAUGHT, self.caught + weight))

    def after_wrong_of_a_host(self) -> TrackRecord:
        """A crew's record after one of its hosts was caught: one of many may be broken."""
        return self._replace(caught=min(_MOST_CAUGHT, self.caught + 1))

    @property
    def doubt(self) -> float:
        """The probability that an unchecked answer is wrong."""
        return _doubt(self.streak, self.caught)

    @property
    def is_distrusted(self) -> bool:
        """Whether it was caught and has not made up for that."""
        return self.caught > 0 and self.doubt > PRIOR / 2

    @property
    def most_held(self) -> int | None:
        """How many replicas such a host may hold; None if only its width bounds that."""
        if self.is_distrusted:
            return _DISTRUSTED_WIDTH
        return _CAUGHT_WIDTH if self.caught and self.doubt > _LITTLE_DOUBT else None

    @property
    def check_share(self) -> float:
        """The share of its answers that is checked once it is trusted."""
        return max(LEAST_SHARE, _SHARE / math.sqrt(max(1, self.streak)))


NEWCOMER = TrackRecord()


@lru_cache(10_000)  # asked again and again of the same hosts
def _doubt(streak: int, caught: int) -> float:
    weight = 2.0**caught
    return min(_MOST_PRIOR, PRIOR * weight) / (1 + math.e * streak / weight)


def sample_size(open_answers: int) -> int:
    """Return how many of a host's open answers are checked when they fill its width."""
    return min(open_answers, max(SEASON, math.ceil(_SHARE_OF_A_SAMPLE * open_answers)))


def sample_size_at_the_end(open_answers: int, open_part: float, assurance: float) -> int:
    """Return how many of a host's open answers are checked when its BOT has nothing else left.

    `open_part` is the part of the BOT's jobs that is open.  Who lies in x of n open answers gets
    x (1 - m / n)^x wrong ones past m checks, at most n / (e m).  So many checks that no more than
    1 - `assurance` of the BOT's jobs are wrong if a share PRIOR of the hosts lies just so.
    """
    needed = math.ceil(PRIOR * open_part / (math.e * (1 - assurance)))
    return min(open_answers, max(sample_size(open_answers), needed))


def most_agreements(crews: int, are_gathering: bool = False) -> int:
    """Return how often two untrusted crews prove each other right, where so many crews work.

    Colluding hosts agree with each other, as fast as they like.  So a quarter of all crews must not
    become trusted by agreeing among themselves alone: what they can count stays below the streak
    that makes a host trusted.  While crews are gathering, nobody can tell how large a ring is.
    One agreement of each pair counts always: a ring of more than 37 owners is not held by this.
    """
    if are_gathering:
        return 1
    return max(1, int(_RING_STREAK / (_RING_SHARE * max(1, crews))))


def coin(secret: str, bot: int, seq: int, replica: int = 0) -> float:
    """Return the coin of a replica, or of a job, from 0 to 1.

    It is one for all time, and nobody knows it without the secret.
    """
    name = f"{bot} {seq} {replica}".encode()
    digest = hashlib.blake2b(name, key=secret[:64].encode(), digest_size=8)
    return int.from_bytes(digest.digest()) / 2**64
