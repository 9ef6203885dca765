"""Whether the answers to a job are sure: among strangers, equal answers alone are not.

Theory of operation
===================

Each answer has a doubt: the probability that it is wrong, by what its host and its host's crew
have proven for this program (`matching/track_record.py`).  Answers that agree form a group.  As in
Sarmenta's "Sabotage-tolerance mechanisms" (2002, section 5), the confidence in a group is the
probability that it is right and all others are wrong, among all ways in which at most one group is
right.  Liars may agree with each other, so a group is wrong as a whole or not at all.

    a job's answers are   when
    CONFIRMED             an owner's own or vouched for machine gave them; or three strangers agree
                          and the confidence is reached; or a trusted host gave the only one, or
                          one of those that agree, and passed enough checks since
    PROVISIONAL           the only one is a trusted host's, and its coin says that it is not
                          checked; or strangers agree, and no trusted one has passed checks since
    OPEN                  further copies are needed: a check, or a dispute to settle

Each answer has a coin of its own, also one that replaces a first copy that failed: nobody can tell
whether it will be checked, even if colluders failed the first one on purpose.

What a host says that was caught and has not made up for it says nothing: an answer that stands
against such ones alone is judged as if it were the only one.

Two that agree may be liars who were patient until they were trusted, and meet in one job: no streak
tells them from others.  So their agreement waits for checks as well; one that meets an honest host
in these is caught.  Liars who lie only where they meet are not: so the job's coin may say that what
a trusted host agreed on is checked once more.

A trusted host is one whose doubt is within what the BOT's Assurance leaves.  What is provisional is
looked at again when the standing of a host that it relies on has changed.  When that host is caught
its answers lose their weight, and the job is open again.

Once answers differ, somebody lied or erred, and to be outvoted is to be caught.  The right group
must lead by three owners: the others might be honest hosts that met colluding liars.  While none
of those who lead is trusted, and more than a few owners work for the BOT, they must lead by five to
eight: liars who answer at once are drawn again and again where slow hosts do not come.

At a BOT's end nothing more will be learnt by itself: what the caller marks as due is checked then.
Among strangers, a BOT with a quorum and without Assurance has its answers when the quorum agrees
and nobody of it was caught until the end of the BOT.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache

from gridbot_server.matching.lots import FEW
from gridbot_server.matching.track_record import NEWCOMER, PRIOR, TrackRecord

DEFAULT_ASSURANCE = 0.999
_FEW = 3  # strangers who agree are sure without a trusted one among them
_LEAD = 3
# Where no trusted host is among those who lead: what a tenth of all owners is, but at least and at
# most so many.
_LEAST_LEAD_OF_UNPROVEN, _MOST_LEAD_OF_UNPROVEN = 5, 8
_LEAST_DOUBT = 1e-9
# The share of agreements with a trusted host that is checked once more, where many could do so.
AGAIN = 0.1


@dataclass(frozen=True, slots=True)
class Credence:
    """Why an answer is believed, or not."""

    host: TrackRecord = NEWCOMER
    crew: TrackRecord = NEWCOMER
    is_vouched: bool = False  # by the BOT's owner, whose own machine it is, or by an operator
    is_seasoned: bool = False  # its host has passed enough checks since
    is_due: bool = False  # relied on, and to be settled: nothing will be learnt by itself any more
    coin: float = 1.0  # from 0 to 1: whether it is checked; nobody knows it before
    # What follows, and is asked for again and again.
    doubt: float = field(init=False)  # the probability that it is wrong
    is_distrusted: bool = field(init=False)  # its host was caught and has not made up for that
    weight: float = field(init=False)  # logarithmic odds; distrusted ones are no evidence

    def __post_init__(self) -> None:
        doubt = self._doubt()
        is_distrusted = not self.is_vouched and self.host.is_distrusted
        object.__setattr__(self, "doubt", doubt)
        object.__setattr__(self, "is_distrusted", is_distrusted)
        object.__setattr__(self, "weight", 0.0 if is_distrusted else _log_odds(doubt))

    def _doubt(self) -> float:
        """Return how far it is in doubt.

        A machine that was never caught is trusted like its owner from its first right answer on.
        What strangers prove each other right in is bounded for each owner: so it could not prove
        many machines of each, and all would wait for the first that is trusted.
        """
        if self.is_vouched:
            return 0.0
        if self.host.streak and not self.host.caught:
            return self.crew.doubt
        return max(self.host.doubt, self.crew.doubt)


@lru_cache(10_000)
def _log_odds(doubt: float) -> float:
    doubt = max(_LEAST_DOUBT, doubt)
    return math.log((1 - doubt) / doubt)


class Judgement(Enum):
    """What a job's answers come to."""

    CONFIRMED = auto()
    PROVISIONAL = auto()
    OPEN = auto()


@dataclass(frozen=True, slots=True)
class AssuranceTerms:
    """What a BOT asks of its answers among strangers."""

    assurance: float = DEFAULT_ASSURANCE
    quorum: int = 1
    is_explicit: bool = True  # the BOT asks for Assurance, not for a quorum alone


def confidence(groups: Sequence[Sequence[Credence]]) -> float:
    """Return the probability that the first of these groups of answers is right."""
    weights = [*map(weight, groups)]
    if not weights:
        return 0.0
    most = max(0.0, *weights)
    odds = [math.exp(weight - most) for weight in weights]
    return odds[0] / (math.exp(-most) + math.fsum(odds))


def weight(group: Sequence[Credence]) -> float:
    """Return the evidence for a group of answers, as logarithmic odds."""
    return math.fsum([answer.weight for answer in group])


def judge(
    groups: Sequence[Sequence[Credence]], terms: AssuranceTerms, coin: float, crews: int
) -> tuple[Judgement, int]:
    """Judge groups of answers, the weightiest first; return also the answers that are lacking.

    `coin` is the job's, from 0 to 1; so many `crews` work for the BOT (matters where there are
    several answers).
    """
    if not groups:
        return Judgement.OPEN, max(1, terms.quorum)
    best = groups[0]
    if any(answer.is_vouched for answer in best) and len(best) >= terms.quorum:
        return Judgement.CONFIRMED, 0
    heard = _heard(best)
    if rivals := max([len(_heard(group)) for group in groups[1:]], default=0):
        return _judge_dispute(heard, rivals, terms, crews)
    if len(heard) < terms.quorum:
        return Judgement.OPEN, terms.quorum - len(heard)
    if len(heard) == 1:
        return _judge_lone(heard[0], terms)
    is_doubted = terms.is_explicit and crews > FEW and coin < AGAIN
    return _judge_agreement(heard, terms, is_doubted)


def _heard(group: Sequence[Credence]) -> list[Credence]:
    return [answer for answer in group if not answer.is_distrusted]


def _judge_dispute(
    best: Sequence[Credence], rivals: int, terms: AssuranceTerms, crews: int
) -> tuple[Judgement, int]:
    is_proven = crews <= FEW or any(is_trusted(answer, terms) for answer in best)
    lead = _LEAD if is_proven else _lead_of_unproven(crews)
    if len(best) - rivals >= lead and len(best) >= terms.quorum:
        return Judgement.CONFIRMED, 0
    return Judgement.OPEN, 1


def _lead_of_unproven(crews: int) -> int:
    return min(_MOST_LEAD_OF_UNPROVEN, max(_LEAST_LEAD_OF_UNPROVEN, int(PRIOR * crews)))


def _judge_lone(answer: Credence, terms: AssuranceTerms) -> tuple[Judgement, int]:
    """Judge the only answer to a job: a stranger's is checked, a trusted host's if it is due."""
    if not is_trusted(answer, terms):
        return Judgement.OPEN, 1
    if answer.is_seasoned:
        return Judgement.CONFIRMED, 0
    if answer.is_due or is_checked(answer):
        return Judgement.OPEN, 1
    return Judgement.PROVISIONAL, 0


def _judge_agreement(
    best: Sequence[Credence], terms: AssuranceTerms, is_doubted: bool
) -> tuple[Judgement, int]:
    # Who has just checked what was due is not: the agreement waits like any other.
    is_due = all(answer.is_due for answer in best)
    is_sure = confidence([best]) >= terms.assurance
    if is_sure and len(best) >= _FEW:
        return Judgement.CONFIRMED, 0
    trusted = [answer for answer in best if is_trusted(answer, terms)]
    if is_sure and trusted:
        if is_doubted:
            return Judgement.OPEN, 1
        is_settled = is_due or any(answer.is_seasoned for answer in trusted)
        return (Judgement.CONFIRMED if is_settled else Judgement.PROVISIONAL), 0
    if is_due:
        # A quorum is what was asked for, and nobody of it was caught.
        return (Judgement.OPEN, 1) if terms.is_explicit else (Judgement.CONFIRMED, 0)
    return Judgement.PROVISIONAL, 0


def further_copies(answer: Credence, terms: AssuranceTerms) -> int:
    """Return the copies to queue when the first is sent to such a host.

    A check is made at once: sent later, hosts could tell it by its place among the jobs.
    """
    if answer.is_vouched or terms.quorum > 1:
        return terms.quorum - 1
    return int(not is_trusted(answer, terms) or is_checked(answer))


def is_trusted(answer: Credence, terms: AssuranceTerms) -> bool:
    """Whether the doubt of an answer is within what the Assurance leaves."""
    return answer.doubt <= 1 - terms.assurance


def is_checked(answer: Credence) -> bool:
    """Whether an answer of a trusted host gets a check when it is the only one."""
    return answer.coin < answer.host.check_share


def terms_of(assurance: float | None, quorum: int, among_strangers: bool) -> AssuranceTerms | None:
    """Return what a BOT asks of strangers' answers; None where the first ones, or any, are sure."""
    if not among_strangers or (assurance is None and quorum == 1):
        return None
    if assurance is None:
        return AssuranceTerms(quorum=quorum, is_explicit=False)
    return AssuranceTerms(assurance, quorum)
