"""What a job needs next, given its replicas.  Pure; the transitioner applies it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from gridbot_server.cycles.quorum import groups
from gridbot_server.storage.states import ERRORS, FAILURES, RELINQUISHED, State
from gridbot_server.validators import Validator

# Hosts that vanish are not the job's fault, so expiries are borne longer than errors; yet every
# job must end.
EXPIRIES_PER_ATTEMPT = 10


class Ended(NamedTuple):
    """A replica that is no longer in progress."""

    replica: int
    round: int
    how: str
    reason: str
    digest: bytes | None
    valid: bool | None
    ended_at: datetime
    voter: int  # its host, or its owner where a quorum takes different owners


@dataclass(frozen=True, slots=True)
class Rules:
    """What a BOT says of how its jobs are judged."""

    quorum: int
    max_attempts: int
    agree: Validator
    failover_after: int | None = None  # failures in a round; from then on, dedicated hosts only
    owner: int = 0
    among_strangers: bool = False  # its jobs run on machines whose owners nobody vouches for


@dataclass(slots=True)
class Job:
    """One job: replicas in progress, copies that wait, replicas that ended."""

    round: int = 0
    leased: list[int] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    canonical: int | None = None  # of its outcome
    has_outcome: bool = False
    doubted: AbstractSet[int] = frozenset()  # lone voters who are not alone in working for its BOT

    @property
    def last_replica(self) -> int:
        """The highest number that a replica has."""
        return max([*self.leased, *self.queued, *(item.replica for item in self.ended)], default=0)


@dataclass(frozen=True, slots=True)
class Decision:
    """Verdicts on replicas, and at most one of: an outcome, or further copies."""

    valid: Mapping[int, bool] = field(default_factory=dict)  # replica -> verdict
    canonical: int | None = None
    failure: str | None = None  # why the job failed for good
    copies: int = 0
    why: str = ""
    pool: str | None = None  # "dedicated": only such hosts may have the copies

    @property
    def finishes(self) -> bool:
        """Whether the job has its outcome now."""
        return self.canonical is not None or self.failure is not None


def decide(job: Job, rules: Rules) -> Decision:
    """Judge what has ended and say what is to be done.

    Deciding twice gives the same until it is applied, so that a crash in between loses nothing.
    """
    verdicts = {item.replica: False for item in job.ended if item.how in FAILURES}
    if job.has_outcome:
        return Decision(verdicts | _late_verdicts(job, rules))
    answers = [item for item in job.ended if item.how == State.SUCCESS and item.valid is not False]
    votes = _votes(answers)
    agreeing = groups(votes, rules.agree)
    best = agreeing[0] if agreeing else []
    if len(best) >= rules.quorum:
        right = best[0].digest
        verdicts |= {item.replica: rules.agree(right, item.digest) for item in answers}
        return Decision(verdicts, canonical=best[0].replica)
    failure = _failure(job, votes, rules)
    if failure:
        return Decision(verdicts | {item.replica: False for item in answers}, failure=failure)
    lacking = rules.quorum - len(best) - len(job.leased) - len(job.queued)
    return Decision(verdicts, copies=max(0, lacking), why=_why(job), pool=_pool(job, rules))


def _votes(answers: Sequence[Ended]) -> list[Ended]:
    """Return the earliest answer of each voter, in order.

    A host that let its replica expire may have been given another copy; if it then answers both,
    it is still one host.
    """
    votes: dict[int, Ended] = {}
    for item in sorted(answers, key=lambda item: item.ended_at):
        votes.setdefault(item.voter, item)
    return list(votes.values())


def _late_verdicts(job: Job, rules: Rules) -> dict[int, bool]:
    """Answers that came after the outcome count for their host, not for the job."""
    by_number = {item.replica: item for item in job.ended}
    canonical = by_number.get(job.canonical or 0)
    return {
        item.replica: canonical is not None and rules.agree(canonical.digest, item.digest)
        for item in job.ended
        if item.how == State.SUCCESS and item.valid is None
    }


def lone_voters(job: Job, rules: Rules) -> set[int]:
    """Return the lone reporters by whom the job would be given up."""
    exhausted = (items for items in _exhausted(job, rules) if items)
    voters = ({item.voter for item in items} for items in exhausted)
    return {voter for found in voters if len(found) == 1 for voter in found}


def _failure(job: Job, answers: Sequence[Ended], rules: Rules) -> str | None:
    """Return why the job is given up, or None.  Attempts count per round of retries."""
    errors, expired = _exhausted(job, rules)
    if errors and _have_witness(errors, job):
        last = max(errors, key=lambda item: item.ended_at)
        return f"{len(errors)} attempts failed, the last one: {last.reason or last.how}"
    if expired and _have_witness(expired, job):
        return f"{len(expired)} replicas were never answered"
    if len(answers) >= rules.quorum + rules.max_attempts:
        return f"{len(answers)} answers, and no {rules.quorum} of them agree"
    return None


def _exhausted(job: Job, rules: Rules) -> tuple[list[Ended], list[Ended]]:
    """Return the errors and the expiries of this round; none of a kind that is not too many yet."""
    ended = [item for item in job.ended if item.round == job.round]
    errors = [item for item in ended if item.how in ERRORS]
    expired = [item for item in ended if item.how == State.EXPIRED]
    return (
        errors if len(errors) >= rules.max_attempts else [],
        expired if len(expired) >= EXPIRIES_PER_ATTEMPT * rules.max_attempts else [],
    )


def _have_witness(failures: Sequence[Ended], job: Job) -> bool:
    """Whether these count: those of a lone reporter do not while others work for the BOT.

    This witness rule keeps a host that fails all it gets from ending a BOT (black holes, paper
    section 6.5).
    """
    voters = {item.voter for item in failures}
    return len(voters) > 1 or not voters <= job.doubted


def _pool(job: Job, rules: Rules) -> str | None:
    """What fails repeatedly in the grids goes to the dedicated hosts (paper section 7).

    A pilot that was preempted says nothing of the job.
    """
    if rules.failover_after is None:
        return None
    failures = sum(
        item.round == job.round and item.how in FAILURES and item.reason not in RELINQUISHED
        for item in job.ended
    )
    return "dedicated" if failures >= rules.failover_after else None


def _why(job: Job) -> str:
    """Return the reason for a further copy: what ended last."""
    if not job.ended:
        return "quorum"
    last = max(job.ended, key=lambda item: item.ended_at).how
    if last in ERRORS:
        return "error"
    return "expired" if last == State.EXPIRED else "quorum"
