"""When a job has failed too often, and what for and where to a further copy goes.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gridbot_server.cycles.job import Ended, Job, Rules
from gridbot_server.storage.states import ERRORS, FAILURES, RELINQUISHED, State

# Hosts that vanish are not the job's fault, so expiries are borne longer than errors; yet every
# job must end.
EXPIRIES_PER_ATTEMPT = 10


def lone_voters(job: Job, rules: Rules) -> set[int]:
    """Return the lone reporters by whom the job would be given up."""
    exhausted = (items for items in _exhausted(job, rules) if items)
    voters = ({item.voter for item in items} for items in exhausted)
    return {voter for found in voters if len(found) == 1 for voter in found}


def failure(job: Job, answers: Sequence[Ended], rules: Rules) -> str | None:
    """Return why the job is given up, or None.  Attempts count per round of retries."""
    errors, expired = _exhausted(job, rules)
    if errors and _have_witness(errors, job):
        last = max(errors, key=lambda item: item.ended_at)
        failed = (
            f"{len(errors)} attempts failed, the last one" if errors[1:] else "1 attempt failed"
        )
        return f"{failed}: {last.reason or last.how}"
    if expired and _have_witness(expired, job):
        return f"{len(expired)} replicas were never answered"
    if len(answers) >= rules.quorum + rules.max_attempts:
        return f"{len(answers)} answers, and no {rules.quorum} of them agree"
    return None


def _exhausted(job: Job, rules: Rules) -> tuple[list[Ended], list[Ended]]:
    """Return the errors and the expiries of this round; none of a kind that is not too many yet."""
    if len(job.ended) < rules.max_attempts:  # as nearly always
        return [], []
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


def pool(job: Job, rules: Rules) -> str | None:
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


def copies(job: Job, rules: Rules, lacking: int) -> int:
    """Return how many further copies to make of those that are lacking.

    Silent clients may still answer: their replicas are some of the most that may be in progress.
    """
    if job.silent:
        lacking = min(lacking, rules.max_replicas - len(job.leased) - len(job.queued))
    return max(0, lacking)


def why(job: Job) -> str:
    """Return the reason for a further copy: silent clients, or what ended last."""
    if job.silent:
        return "silent"
    if not job.ended:
        return "quorum"
    last = max(job.ended, key=lambda item: item.ended_at).how
    if last in ERRORS:
        return "error"
    return "expired" if last == State.EXPIRED else "quorum"
