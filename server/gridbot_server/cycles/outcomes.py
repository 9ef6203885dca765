"""Writes what decisions say of jobs: outcomes, copies, comparisons, what is dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from gridbot_server.cycles import job_rows
from gridbot_server.cycles.job import Decision, Job
from gridbot_server.storage import moves, sql
from gridbot_server.storage.counters import NO_GRID, Counters
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import JobId, encode, fetch
from gridbot_server.storage.states import Event

SQL = sql.load("cycles.sql")
COMPARISONS = sql.load("comparisons.sql")

# What somebody has waited for already goes out before other copies.
PRIORITY = {"error": 1, "expired": 1, "gang": 1}


class _Numbered(NamedTuple):
    """The last number that a BOT had given to an outcome."""

    bot: int
    last: int


class _Done(NamedTuple):
    """How many jobs of a BOT are done, on a grid."""

    bot: int
    grid: str
    jobs: int


def finish(
    conn: Connection,
    jobs: Mapping[JobId, Job],
    decisions: Mapping[JobId, Decision],
    credit: Mapping[JobId, float],
    counters: Counters,
) -> None:
    """Give jobs their outcome, and end BOTs that have all outcomes."""
    finished = {name: item for name, item in decisions.items() if item.finishes}
    if finished:
        _add_outcomes(conn, jobs, finished, credit, counters)
        conn.execute(SQL["end_bots"], {"bots": sorted({bot for bot, _ in finished})})


def _add_outcomes(
    conn: Connection,
    jobs: Mapping[JobId, Job],
    finished: Mapping[JobId, Decision],
    credit: Mapping[JobId, float],
    counters: Counters,
) -> None:
    done = Counter(bot for (bot, _), item in finished.items() if item.failure is None)
    failed = Counter(bot for (bot, _), item in finished.items() if item.failure is not None)
    bots = [
        {"bot": bot, "done": done[bot], "failed": failed[bot]} for bot in sorted({*done, *failed})
    ]
    numbered = fetch(conn, _Numbered, SQL["number_outcomes"], {"bots": encode(bots)})
    last = {item.bot: item.last for item in numbered}
    rows = []
    for name, decision in finished.items():
        last[name.bot] += 1
        rows.append(
            {
                **name._asdict(),
                "round": jobs[name].round,
                "canonical": decision.canonical,
                "reason": decision.failure,
                "n": last[name.bot],
                "credit": credit.get(name, 0.0),
            }
        )
    by_client = Counter(
        (name.bot, jobs[name].client_of(item.canonical))
        for name, item in finished.items()
        if item.canonical is not None
    )
    clients = [
        {"bot": bot, "client": client, "jobs": count} for (bot, client), count in by_client.items()
    ]
    values = {"outcomes": encode(rows), "done": encode(clients)}
    for item in fetch(conn, _Done, SQL["add_outcomes"], values):
        counters.note(item.bot, item.grid, "done", item.jobs)
    for bot, count in failed.items():
        counters.note(bot, NO_GRID, "failed", count)


def add_copies(
    conn: Connection,
    jobs: Mapping[JobId, Job],
    decisions: Mapping[JobId, Decision],
    counters: Counters,
) -> None:
    """Queue the further copies that jobs need."""
    rows = [
        {
            **name._asdict(),
            "replica": jobs[name].last_replica + copy,
            "round": jobs[name].round,
            "why": decision.why,
            "prio": PRIORITY.get(decision.why, 0),
            "pool": decision.pool,
        }
        for name, decision in decisions.items()
        for copy in range(1, decision.copies + 1)
    ]
    if rows:
        moves.add_copies(conn, rows, counters)


def ask_comparisons(conn: Connection, decisions: Mapping[JobId, Decision]) -> None:
    """Have the contents compared that jobs need compared."""
    rows = [
        {**name._asdict(), "one": pair.one.hex(), "other": pair.other.hex()}
        for name, decision in decisions.items()
        for pair in decision.compare
    ]
    if rows:
        conn.execute(COMPARISONS["ask"], {"comparisons": encode(rows)})


def drop_surplus(
    conn: Connection,
    jobs: Mapping[JobId, Job],
    decisions: Mapping[JobId, Decision],
    counters: Counters,
) -> None:
    """Drop the other replicas of jobs that have their outcome."""
    over = [name for name, item in decisions.items() if item.finishes or jobs[name].has_outcome]
    surplus = [name for name in over if jobs[name].leased or jobs[name].queued]
    if surplus:
        listed = job_rows.listed(surplus)
        # Copies first: one that is just being sent has become a lease when we have waited for it.
        moves.drop_copies(conn, "drop_copies_of_jobs", listed, counters)
        moves.end_unanswered(conn, Event.JOB_HAS_OUTCOME, listed, counters)
