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
    PROVISIONAL           the only one is a trusted host's, and the coin says that it is not
                          checked; or strangers agree, and no trusted one has passed checks since
    OPEN                  further copies are needed: a check, or a dispute to settle

Two that agree may be liars who were patient until they were trusted, and meet in one job: no streak
tells them from others.  So their agreement waits for checks as well; one that meets an honest host
in these is caught.

A trusted host is one whose doubt is within what the BOT's Assurance leaves.  What is provisional is
looked at again when the standing of a host that it relies on has changed.  When that host is caught
its answers lose their weight, and the job is open again.

Once answers differ, somebody lied or erred, and to be outvoted is to be caught.  The right group
must lead by two owners, or by three while the others might be honest hosts that met colluding
liars.  While none of those who lead is trusted, and more than a few owners work for the BOT, they
must lead by five: liars who answer at once are drawn again and again where slow hosts do not come.

At a BOT's end nothing more will be learnt by itself: what the caller marks as due is checked then.
Among strangers, a BOT with a quorum and without Assurance has its answers when the quorum agrees
and nobody of it was caught until the end of the BOT.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from gridbot_server.matching.lots import FEW
from gridbot_server.matching.track_record import NEWCOMER, TrackRecord

DEFAULT_ASSURANCE = 0.999
_FEW = 3  # strangers who agree are sure without a trusted one among them
_LEAD = 2
_LEAD_OVER_HONEST = 3
_LEAD_OF_UNPROVEN = 5  # where no trusted host is among those who lead, and many could check
_LEAST_DOUBT = 1e-9


@dataclass(frozen=True, slots=True)
class Credence:
    """Why an answer is believed, or not."""

    host: TrackRecord = NEWCOMER
    crew: TrackRecord = NEWCOMER
    is_vouched: bool = False  # by the BOT's owner, whose own machine it is, or by an operator
    is_seasoned: bool = False  # its host has passed enough checks since
    is_due: bool = False  # relied on, and to be settled: nothing will be learnt by itself any more
    is_first: bool = True  # of its job: no host could tell whether it would be checked

    @property
    def doubt(self) -> float:
        """The probability that it is wrong.

        A machine that was never caught is trusted like its owner from its first right answer on.
        What strangers prove each other right in is bounded for each owner: so it could not prove
        many machines of each, and all would wait for the first that is trusted.
        """
        if self.is_vouched:
            return 0.0
        if self.host.streak and not self.host.caught:
            return self.crew.doubt
        return max(self.host.doubt, self.crew.doubt)

    @property
    def is_distrusted(self) -> bool:
        """Whether its host was caught and has not made up for that."""
        return not self.is_vouched and self.host.is_distrusted


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
    weights = [math.fsum(map(_weight, group)) for group in groups]
    if not weights:
        return 0.0
    most = max(0.0, *weights)
    return math.exp(weights[0] - most) / (
        math.exp(-most) + math.fsum(math.exp(weight - most) for weight in weights)
    )


def weight(group: Sequence[Credence]) -> float:
    """Return the evidence for a group of answers, as logarithmic odds."""
    return math.fsum(map(_weight, group))


def _weight(answer: Credence) -> float:
    doubt = max(_LEAST_DOUBT, answer.doubt)
    return math.log((1 - doubt) / doubt)


def judge(
    groups: Sequence[Sequence[Credence]], terms: AssuranceTerms, coin: float, crews: int
) -> tuple[Judgement, int]:
    """Judge groups of answers, the weightiest first; return also the answers that are lacking.

    `coin` is the job's, from 0 to 1; so many `crews` work for the BOT (matters in a dispute).
    """
    if not groups:
        return Judgement.OPEN, max(1, terms.quorum)
    best = groups[0]
    if any(answer.is_vouched for answer in best) and len(best) >= terms.quorum:
        return Judgement.CONFIRMED, 0
    if len(groups) > 1:
        return _judge_dispute(groups, terms, crews)
    counted = sum(not answer.is_distrusted for answer in best)
    if len(best) == 1 and terms.quorum == 1:
        return _judge_lone(best[0], terms, coin)
    if counted < terms.quorum:
        return Judgement.OPEN, terms.quorum - counted
    return _judge_agreement(groups, counted, terms)


def _judge_dispute(
    groups: Sequence[Sequence[Credence]], terms: AssuranceTerms, crews: int
) -> tuple[Judgement, int]:
    best = groups[0]
    rivals = max(sum(not answer.is_distrusted for answer in group) for group in groups[1:])
    counted = sum(not answer.is_distrusted for answer in best)
    lead, needed = counted - rivals, _needed_lead(best, rivals, terms, crews)
    lacking = max(needed - lead, terms.quorum - len(best))
    is_sure = lead >= _LEAD_OVER_HONEST or confidence(groups) >= terms.assurance
    if lacking <= 0 and is_sure:
        return Judgement.CONFIRMED, 0
    return Judgement.OPEN, 1


def _needed_lead(best: Sequence[Credence], rivals: int, terms: AssuranceTerms, crews: int) -> int:
    """Return by how many owners the right group must lead over the strongest other one."""
    if crews > FEW and not any(is_trusted(answer, terms) for answer in best):
        return _LEAD_OF_UNPROVEN
    return _LEAD_OVER_HONEST if rivals else _LEAD


def _judge_lone(answer: Credence, terms: AssuranceTerms, coin: float) -> tuple[Judgement, int]:
    """Judge the only answer to a job: a stranger's is checked, a trusted host's if it is due."""
    if not is_trusted(answer, terms):
        return Judgement.OPEN, 1
    if answer.is_seasoned:
        return Judgement.CONFIRMED, 0
    if answer.is_due or not answer.is_first or is_checked(answer.host, coin):
        return Judgement.OPEN, 1
    return Judgement.PROVISIONAL, 0


def _judge_agreement(
    groups: Sequence[Sequence[Credence]], counted: int, terms: AssuranceTerms
) -> tuple[Judgement, int]:
    best = groups[0]
    # Who has just checked what was due is not: the agreement waits like any other.
    is_due = all(answer.is_due for answer in best)
    is_sure = confidence(groups) >= terms.assurance
    if is_sure and counted >= _FEW:
        return Judgement.CONFIRMED, 0
    trusted = [answer for answer in best if is_trusted(answer, terms)]
    if is_sure and trusted:
        is_settled = is_due or any(answer.is_seasoned for answer in trusted)
        return (Judgement.CONFIRMED if is_settled else Judgement.PROVISIONAL), 0
    if is_due:
        # A quorum is what was asked for, and nobody of it was caught.
        return (Judgement.OPEN, 1) if terms.is_explicit else (Judgement.CONFIRMED, 0)
    return Judgement.PROVISIONAL, 0


def further_copies(answer: Credence, terms: AssuranceTerms, coin: float) -> int:
    """Return the copies to queue when the first is sent to such a host.

    A check is made at once: sent later, hosts could tell it by its place among the jobs.
    """
    if answer.is_vouched or terms.quorum > 1:
        return terms.quorum - 1
    return int(not is_trusted(answer, terms) or is_checked(answer.host, coin))


def is_trusted(answer: Credence, terms: AssuranceTerms) -> bool:
    """Whether the doubt of an answer is within what the Assurance leaves."""
    return answer.doubt <= 1 - terms.assurance


def is_checked(host: TrackRecord, coin: float) -> bool:
    """Whether a job whose coin this is gets a check when a host of this standing answers it."""
    return coin < host.check_share


def terms_of(assurance: float | None, quorum: int, among_strangers: bool) -> AssuranceTerms | None:
    """Return what a BOT asks of strangers' answers; None where the first ones, or any, are sure."""
    if not among_strangers or (assurance is None and quorum == 1):
        return None
    if assurance is None:
        return AssuranceTerms(quorum=quorum, is_explicit=False)
    return AssuranceTerms(assurance, quorum)
