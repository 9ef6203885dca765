"""The transitioner: takes jobs that need a decision, in batches, and applies what `decide` says.

Validation and assimilation are part of it: verdicts, the canonical replica, the outcome and the
BOT's end are written in the one transaction that consumes the wake-ups.  Contents are compared
beside it (`comparing.py`): a job whose answers need that is woken again when it is done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import psycopg

from gridbot_server.credit import ledger
from gridbot_server.credit.ledger import Valid
from gridbot_server.cycles import (
    brake,
    credences,
    gangs,
    job_rows,
    outcomes,
    reputation,
    shared_rows,
    verdicts,
    widths,
)
from gridbot_server.cycles.job import Job, Rules
from gridbot_server.cycles.parts import WHOLE, BotPart
from gridbot_server.cycles.transition import decide
from gridbot_server.metrics.traces import TracedReplicas
from gridbot_server.storage import sql
from gridbot_server.storage.counters import CYCLES, Counters
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import JobId, fetch

log = logging.getLogger(__name__)

SQL = sql.load("cycles.sql")

# Errors that say nothing of the jobs of a batch.
_NOT_OURS = (psycopg.OperationalError, psycopg.InterfaceError, MemoryError)
_ERROR_LENGTH = 500  # characters that are kept of an error


def run_once(
    conn: Connection,
    part: BotPart = WHOLE,
    limit: int = 2000,
    traced: TracedReplicas | None = None,
) -> int:
    """Settle up to `limit` wake-ups of a part of the BOTs; return how many there were.

    All in one transaction: a crash leaves them all to be settled again.  The wake-ups of a BOT
    with an unknown validator are kept: a server that knows it settles them.  A job at which this
    program fails is found by ever smaller batches, and set aside, so that it holds up no other.
    `traced` tells traces of verdicts.
    """
    left: list[int] = []
    while True:
        woken: list[JobId] = []
        judged: list[verdicts.NewVerdict] = []
        rules: Mapping[int, Rules] = {}
        try:
            with conn.transaction():
                wanted = {**part._asdict(), "limit": limit, "left": left}
                woken = fetch(conn, JobId, SQL["take_pending"], wanted)
                if woken:
                    conn.execute(SQL["plan_by_keys"])
                    rules = job_rows.lock_bots(conn, {job.bot for job in woken})
                    judged = _settle(conn, sorted(set(woken)), rules)
            verdicts.observe(judged, rules)  # once they stand
        except job_rows.NewerValidator as error:
            _complain(str(error))
            left.append(error.bot)
        except _NOT_OURS:
            raise
        except Exception as error:
            if not woken:
                raise
            if len(set(woken)) == 1:
                _set_aside(conn, woken[0], error)
                return 1
            limit = max(1, min(limit, len(woken)) // 2)
        else:
            if traced is not None:
                verdicts.trace(conn, judged, traced)
            return len(woken)


def try_again(conn: Connection) -> None:
    """Wake the jobs that were set aside: this program may be a newer one."""
    conn.execute(SQL["try_again"])


def _set_aside(conn: Connection, job: JobId, error: Exception) -> None:
    log.error(
        "job %d of BOT %d is set aside: it cannot be decided", job.seq, job.bot, exc_info=error
    )
    said = f"{type(error).__name__}: {error}".replace("\0", "")[:_ERROR_LENGTH]
    conn.execute(SQL["set_aside"], {**job._asdict(), "error": said})


@lru_cache(maxsize=1000)
def _complain(error: str) -> None:
    """Log an error that comes again in each pass, once."""
    log.error("%s: its jobs stay undecided until this server is updated", error)


def _settle(
    conn: Connection, ids: Sequence[JobId], rules: Mapping[int, Rules]
) -> list[verdicts.NewVerdict]:
    """Decide jobs, in the caller's transaction; return the verdicts on their replicas."""
    is_assured = any(item.terms for item in rules.values())
    secret = credences.take_turns(conn) if is_assured else ""
    of_gangs = gangs.gangs_of(ids, rules)
    gangs.lock(conn, of_gangs)
    together = [name for gang in of_gangs for name in gangs.members(gang, rules)]
    alone = [name for name in ids if name.bot in rules and rules[name.bot].together == 1]
    jobs = job_rows.load(conn, alone, together, rules)
    believed = credences.believe(conn, jobs, rules, secret)
    decisions = {name: decide(jobs[name], rules[name.bot]) for name in alone}
    for gang in of_gangs:
        members = {name: jobs[name] for name in gangs.members(gang, rules)}
        decisions |= gangs.decide_gang(members, rules[gang.bot])
    counters = Counters()
    gangs.follow(conn, of_gangs, jobs, decisions, rules, counters)
    judged = verdicts.judge(conn, decisions)
    widths.forget(conn, jobs, decisions, rules)
    payment = _appraise(conn, judged, jobs)
    outcomes.finish(conn, jobs, decisions, payment.of_jobs if payment else {}, counters)
    agreeing = reputation.follow(conn, jobs, decisions, rules, believed, counters)
    outcomes.add_copies(conn, jobs, decisions, counters)
    outcomes.ask_comparisons(conn, decisions)
    shared_rows.write(conn, judged, rules, agreeing, payment)
    outcomes.drop_surplus(conn, jobs, decisions, counters)
    reputation.close(conn, decisions, rules, believed)
    brake.follow(conn, jobs, decisions, rules)
    counters.write(conn, CYCLES)
    return judged


def _appraise(
    conn: Connection, judged: Iterable[verdicts.NewVerdict], jobs: Mapping[JobId, Job]
) -> ledger.Payment | None:
    """Say what the answers earn that were just found valid."""
    valid = [
        Valid(item.bot, item.seq, item.host, item.owner, item.turnaround)
        for item in judged
        if item.valid
    ]
    if not valid:
        return None
    granted = job_rows.earned(conn, [name for name, job in jobs.items() if job.has_outcome])
    return ledger.appraise(conn, valid, granted)
