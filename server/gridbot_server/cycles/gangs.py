"""Gangs, jobs of a BOT that run together: all of one get their outcomes, or all begin anew.

A gang begins anew when one of its members ends without an answer, or vanishes: what the others do
is in vain then.  Each member that was sent gets another replica, and the gang gathers again.  It
fails as a whole when one of its members has failed too often.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from gridbot_server.cycles import attempts
from gridbot_server.cycles.job import Decision, Ended, Job, Rules
from gridbot_server.cycles.quorum import Judge
from gridbot_server.cycles.transition import decide, with_verdicts
from gridbot_server.storage import moves, sql
from gridbot_server.storage.counters import CYCLES, Counters
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import JobId, encode, fetch
from gridbot_server.storage.states import FAILURES, Event, State

SQL = sql.load("gangs.sql")

_WHY = "gang"  # of replicas whose members did not fail


class GangId(NamedTuple):
    """A gang of a BOT."""

    bot: int
    number: int


# ------------------------------------------------------------------------------------ pure


def gangs_of(ids: Collection[JobId], rules: Mapping[int, Rules]) -> list[GangId]:
    """The gangs to which these jobs belong, in order; jobs that run for themselves have none."""
    return sorted(
        {
            GangId(bot, seq // rules[bot].together)
            for bot, seq in ids
            if bot in rules and rules[bot].together > 1
        }
    )


def members(gang: GangId, rules: Mapping[int, Rules]) -> list[JobId]:
    """The jobs of a gang."""
    size = rules[gang.bot].together
    return [JobId(gang.bot, seq) for seq in range(gang.number * size, (gang.number + 1) * size)]


def decide_gang(jobs: Mapping[JobId, Job], rules: Rules) -> dict[JobId, Decision]:
    """As `decide`, for all jobs of a gang at once."""
    if any(job.has_outcome for job in jobs.values()):  # all have
        return {name: decide(job, rules) for name, job in jobs.items()}
    verdicts = {
        name: {item.replica: False for item in job.ended if item.how in FAILURES}
        for name, job in jobs.items()
    }
    lost = [name for name, job in jobs.items() if _is_lost(job)]
    if not lost:
        answers = {name: answer for name, job in jobs.items() if (answer := _answer(job))}
        if len(answers) < len(jobs):
            return {name: Decision(verdicts[name]) for name in jobs}
        judge = Judge(rules.validator, {})
        return {
            name: with_verdicts(
                jobs[name].ended, answer, judge, Decision(verdicts[name], answer.replica)
            )
            for name, answer in answers.items()
        }
    for name in lost:
        if failure := attempts.failure(jobs[name], (), rules):
            told = f"job {name.seq} of its gang: {failure}"
            return {
                each: Decision(
                    verdicts[each], failure=failure if each == name else told, begins_anew=True
                )
                for each in jobs
            }
    return {name: _anew(job, rules, verdicts[name], name in lost) for name, job in jobs.items()}


def _anew(job: Job, rules: Rules, verdicts: Mapping[int, bool], is_lost: bool) -> Decision:
    """Let a member begin anew; one that was never sent, or waits to be, still does."""
    made = Decision(verdicts, pool=attempts.pool(job, rules), begins_anew=True)
    if job.queued or not job.last_replica:
        return made
    return made._replace(copies=1, why=attempts.why(job) if is_lost and job.ended else _WHY)


def _is_lost(job: Job) -> bool:
    """Whether a member was sent and neither runs nor has answered: a silent client's is lost."""
    is_coming = job.coming > 0
    return job.last_replica > 0 and not is_coming and _answer(job) is None


def _answer(job: Job) -> Ended | None:
    """The answer of a member, if it belongs to the gang's last attempt."""
    last = job.last_replica
    return next(
        (item for item in job.ended if item.replica == last and item.how == State.SUCCESS), None
    )


# ------------------------------------------------------------------------------- database


def lock(conn: Connection, gangs: Sequence[GangId]) -> None:
    """Let nobody start these gangs, or note that one of their jobs is leased, meanwhile."""
    if gangs:
        conn.execute(SQL["lock"], _listed(gangs))


def follow(
    conn: Connection,
    gangs: Sequence[GangId],
    jobs: Mapping[JobId, Job],
    decisions: Mapping[JobId, Decision],
    rules: Mapping[int, Rules],
    counters: Counters,
) -> None:
    """End what gangs that begin anew, or fail, have in progress; forget those that are over."""
    over, void = list[GangId](), list[JobId]()
    for gang in gangs:
        named = members(gang, rules)
        if any(decisions[name].begins_anew for name in named):
            void += named
        if any(decisions[name].begins_anew or decisions[name].finishes for name in named):
            over.append(gang)
    if void:
        listed = {"jobs": encode([name._asdict() for name in void])}
        moves.end_unanswered(conn, Event.GANG_BROKEN, listed, counters)
        for bot in sorted({name.bot for name in void}):
            seqs = [name.seq for name in void if name.bot == bot]
            moves.retire(conn, Event.GANG_BROKEN, bot, seqs, counters)
            failed = [seq for seq in seqs if decisions[JobId(bot, seq)].failure]
            unsent = [seq for seq in failed if not jobs[JobId(bot, seq)].last_replica]
            if unsent:
                dropped = {"jobs": encode([{"bot": bot, "seq": seq} for seq in failed])}
                moves.drop_copies(conn, "drop_copies_of_jobs", dropped, counters)
            moves.withhold(conn, bot, unsent, counters)
            for seq in unsent:
                jobs[JobId(bot, seq)].leased.append(1)
    if over:
        conn.execute(SQL["disband"], _listed(over))


def run_once(conn: Connection, limit: int = 100) -> int:
    """Take back what gangs hold that have gathered for too long; return how many they are.

    Their BOTs rest for as long as they have gathered, so that others may gather; next time they
    gather twice as long.  So one that needs many hosts gets them at last, whoever else wants them.
    """
    with conn.transaction():
        late = fetch(conn, GangId, SQL["late"], {"limit": limit})
        if late:
            counters = Counters()
            conn.execute(SQL["rest"], _listed(late))
            moves.end_unanswered(conn, Event.GATHERING_ENDED, _listed(late), counters)
            conn.execute(SQL["disband"], _listed(late))
            counters.write(conn, CYCLES)
        conn.execute(SQL["forget_over"])
        return len(late)


def _listed(gangs: Sequence[GangId]) -> dict[str, str]:
    return {"gangs": encode([gang._asdict() for gang in gangs])}
