"""The transitioner: takes jobs that need a decision, in batches, and applies what `decide` says.

Validation and assimilation are part of it: verdicts, the canonical replica, the outcome and the
BOT's end are written in the one transaction that consumes the wake-ups.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gridbot_server.credit import ledger
from gridbot_server.credit.ledger import Valid
from gridbot_server.cycles.transition import (
    Decision,
    Ended,
    Job,
    Rules,
    decide,
    lone_voters,
)
from gridbot_server.storage import moves, sql
from gridbot_server.storage.counters import CYCLES, Counters
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode
from gridbot_server.storage.states import GIVEN_BACK, Event, State
from gridbot_server.validators import VALIDATORS

log = logging.getLogger(__name__)

SQL = sql.load("cycles.sql")

# What somebody has waited for already goes out before other copies.
PRIORITY = {"error": 1, "expired": 1}

# Reasons of replicas whose client did not end them.
NOT_ENDED = frozenset((Event.DEADLINE_PASSED, *GIVEN_BACK))

JobId = tuple[int, int]


def run_once(conn: Connection, limit: int = 2000) -> int:
    """Settle up to `limit` wake-ups; return how many there were.

    All in one transaction: a crash leaves them all to be settled again.
    """
    with conn.transaction():
        woken = conn.execute(SQL["take_pending"], {"limit": limit}).fetchall()
        if woken:
            conn.execute(SQL["plan_by_keys"])
            _settle(conn, sorted({(bot, seq) for bot, seq in woken}))
    return len(woken)


def _settle(conn: Connection, ids: Sequence[JobId]) -> None:
    rules = _lock_bots(conn, {bot for bot, _ in ids})
    jobs = _load(conn, [job for job in ids if job[0] in rules])
    _doubt(conn, jobs, rules)
    decisions = {name: decide(job, rules[name[0]]) for name, job in jobs.items()}
    counters = Counters()
    valid = _judge(conn, decisions)
    given = _earned(conn, [name for name, job in jobs.items() if job.has_outcome])
    credit = ledger.grant(conn, valid, given) if valid else {}
    _finish(conn, jobs, decisions, credit, counters)
    _add_copies(conn, jobs, decisions, counters)
    counters.write(conn, CYCLES)


def _lock_bots(conn: Connection, bots: Iterable[int]) -> dict[int, Rules]:
    """Return the rules of those BOTs that run or ran to their end; cancelled ones are left out."""
    rows = conn.execute(SQL["lock_bots"], {"bots": list(bots)})
    return {
        bot: Rules(quorum, max_attempts, VALIDATORS[validator], failover_after)
        for bot, state, quorum, max_attempts, validator, failover_after in rows
        if state in ("running", "done")
    }


def _load(conn: Connection, ids: Sequence[JobId]) -> dict[JobId, Job]:
    """Return the jobs as they are now."""
    jobs = {name: Job() for name in ids}
    for bot, seq, *found in conn.execute(SQL["replicas"], _listed(ids)).fetchall():
        job, item = jobs[bot, seq], Ended(*found)
        job.round = max(job.round, item.round)
        match item.how:
            case State.QUEUED:
                job.queued.append(item.replica)
            case State.LEASED:
                job.leased.append(item.replica)
            case "outcome":
                job.canonical, job.has_outcome = item.replica or None, True
            case _:
                job.ended.append(item)
    return jobs


def _earned(conn: Connection, ids: Sequence[JobId]) -> dict[JobId, float]:
    """Return what finished jobs earned a replica."""
    if not ids:
        return {}
    rows = conn.execute(SQL["credits"], _listed(ids)).fetchall()
    return {(bot, seq): credit for bot, seq, credit in rows}


def _listed(ids: Sequence[JobId]) -> dict[str, str]:
    return {"jobs": encode([{"bot": bot, "seq": seq} for bot, seq in ids])}


def _doubt(conn: Connection, jobs: Mapping[JobId, Job], rules: Mapping[int, Rules]) -> None:
    """Note by whose word alone a job would be given up although others work for its BOT."""
    lone = {
        name: lone_voters(job, rules[name[0]])
        for name, job in jobs.items()
        if len(job.ended) >= rules[name[0]].max_attempts
    }
    asked = sorted({(bot, voter) for (bot, _), voters in lone.items() for voter in voters})
    if not asked:
        return
    rows = encode([{"bot": bot, "voter": voter} for bot, voter in asked])
    doubted = set(conn.execute(SQL["others_work"], {"voters": rows}).fetchall())
    for (bot, seq), voters in lone.items():
        jobs[bot, seq].doubted = {voter for voter in voters if (bot, voter) in doubted}


def _judge(conn: Connection, decisions: Mapping[JobId, Decision]) -> list[Valid]:
    """Write the verdicts, count each new one for its host and BOT, once; return the valid."""
    rows = [
        {"bot": bot, "seq": seq, "replica": replica, "valid": valid}
        for (bot, seq), decision in decisions.items()
        for replica, valid in decision.valid.items()
    ]
    if not rows:
        return []
    judged = conn.execute(SQL["judge"], {"verdicts": encode(rows)}).fetchall()
    hosts: dict[int, dict[str, Any]] = defaultdict(
        lambda: {"good": 0, "bad": 0, "cpu": 0.0, "turnaround": 0.0}
    )
    seconds: dict[int, list[float]] = defaultdict(list)
    good: list[Valid] = []
    pilots = _Tally()
    for bot, seq, client, host, owner, valid, reason, cpu, turnaround in judged:
        pilots.count(client, valid, reason)
        rating = hosts[host]
        rating["good" if valid else "bad"] += 1
        if valid:
            rating["cpu"] += cpu
            rating["turnaround"] += turnaround
            seconds[bot].append(turnaround)
            good.append(Valid(bot, seq, host, owner, turnaround))
    pilots.write(conn)
    if hosts:
        rated = [{"id": host, **rating} for host, rating in hosts.items()]
        conn.execute(SQL["rate_hosts"], {"hosts": encode(rated)})
    if seconds:
        sums = [{"bot": bot, "seconds": sum(all_), "n": len(all_)} for bot, all_ in seconds.items()]
        conn.execute(SQL["add_turnarounds"], {"bots": encode(sums)})
    return good


class _Tally:
    """What clients did, for those that are pilots."""

    def __init__(self) -> None:
        self._clients: dict[int, dict[str, Any]] = defaultdict(
            lambda: {"good": 0, "bad": 0, "failure": ""}
        )

    def count(self, client: int, valid: bool, reason: str) -> None:
        """Count a verdict; a replica that never came back is nobody's failure."""
        if valid:
            self._clients[client]["good"] += 1
        elif reason not in NOT_ENDED:
            self._clients[client]["bad"] += 1
            self._clients[client]["failure"] = reason

    def write(self, conn: Connection) -> None:
        rows = [{"id": client, **tally} for client, tally in sorted(self._clients.items())]
        if rows:
            conn.execute(SQL["tally_pilots"], {"clients": encode(rows)})


def _finish(
    conn: Connection,
    jobs: Mapping[JobId, Job],
    decisions: Mapping[JobId, Decision],
    credit: Mapping[JobId, float],
    counters: Counters,
) -> None:
    """Give jobs their outcome, drop their other replicas, and end BOTs that have all outcomes."""
    finished = {name: item for name, item in decisions.items() if item.finishes}
    if finished:
        _add_outcomes(conn, jobs, finished, credit)
        conn.execute(SQL["end_bots"], {"bots": sorted({bot for bot, _ in finished})})
    over = [name for name in decisions if name in finished or jobs[name].has_outcome]
    surplus = [name for name in over if jobs[name].leased or jobs[name].queued]
    if surplus:
        listed = _listed(surplus)
        # Copies first: one that is just being sent has become a lease when we have waited for it.
        moves.drop_copies(conn, "drop_copies_of_jobs", listed, counters)
        moves.end_unanswered(conn, Event.JOB_HAS_OUTCOME, listed, counters)


def _add_outcomes(
    conn: Connection,
    jobs: Mapping[JobId, Job],
    finished: Mapping[JobId, Decision],
    credit: Mapping[JobId, float],
) -> None:
    done = Counter(bot for (bot, _), item in finished.items() if item.failure is None)
    failed = Counter(bot for (bot, _), item in finished.items() if item.failure is not None)
    bots = [
        {"bot": bot, "done": done[bot], "failed": failed[bot]} for bot in sorted({*done, *failed})
    ]
    last: dict[int, int] = dict(
        conn.execute(SQL["number_outcomes"], {"bots": encode(bots)}).fetchall()
    )
    rows = []
    for (bot, seq), decision in finished.items():
        last[bot] += 1
        rows.append(
            {
                "bot": bot,
                "seq": seq,
                "round": jobs[bot, seq].round,
                "canonical": decision.canonical,
                "reason": decision.failure,
                "n": last[bot],
                "credit": credit.get((bot, seq), 0.0),
            }
        )
    conn.execute(SQL["add_outcomes"], {"outcomes": encode(rows)})


def _add_copies(
    conn: Connection,
    jobs: Mapping[JobId, Job],
    decisions: Mapping[JobId, Decision],
    counters: Counters,
) -> None:
    rows = [
        {
            "bot": bot,
            "seq": seq,
            "replica": jobs[bot, seq].last_replica + copy,
            "round": jobs[bot, seq].round,
            "why": decision.why,
            "prio": PRIORITY.get(decision.why, 0),
            "pool": decision.pool,
        }
        for (bot, seq), decision in decisions.items()
        for copy in range(1, decision.copies + 1)
    ]
    if rows:
        moves.add_copies(conn, rows, counters)
