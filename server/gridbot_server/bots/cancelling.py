"""Cancels single jobs of a BOT whose other jobs go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gridbot_server.bots import gangs
from gridbot_server.errors import Conflict, ObjectNotFound, RequestError
from gridbot_server.storage import moves, sql
from gridbot_server.storage.counters import API, NO_GRID, Counters
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode, fetch, fetch_one
from gridbot_server.storage.states import JOB_CANCELLED, Event

SQL = sql.load("cancelling.sql")
CYCLES = sql.load("cycles.sql")
EVENTS = sql.load("assurance.sql")
GANGS = sql.load("gangs.sql")


class _Bot(NamedTuple):
    """A BOT whose row the transaction holds: no outcome is given beside it."""

    state: str
    size: int
    round: int
    has_events: bool
    together: int


class _Job(NamedTuple):
    """A job without an answer; `is_unsent`: no copy of it was ever sent."""

    seq: int
    is_unsent: bool


class _Numbered(NamedTuple):
    """The last number that a BOT had given to an outcome, or to an event."""

    bot: int
    last: int


def cancel_jobs(
    conn: Connection, bot: int, seqs: Sequence[int], only_unsent: bool = False
) -> list[int]:
    """Let jobs have failed for good because they were cancelled; return which, in order.

    What has an answer keeps it, also one that is provisional, so to repeat this changes nothing.
    With `only_unsent`, what was sent to a host goes on as well.
    Clients are told to stop replicas in progress when they ask next.  Raises RequestError for a job
    that the BOT does not have, Conflict for a BOT that is open.
    """
    with conn.transaction():
        found = fetch_one(conn, _Bot, SQL["lock_bot"], {"bot": bot})
        if found is None:
            raise ObjectNotFound(f"there is no BOT {bot}")
        if found.state == "open":
            raise Conflict(f"BOT {bot} is open: its submission is not complete")
        if unknown := sorted(seq for seq in seqs if seq >= found.size):
            raise RequestError(f"jobs: BOT {bot} has {found.size} jobs, and no job {unknown[0]}")
        gangs.check_whole(conn, bot, seqs, "cancel")
        wanted = {"bot": bot, "seqs": list(set(seqs))}
        jobs = fetch(conn, _Job, SQL["unanswered"], wanted) if found.state == "running" else []
        jobs = [job for job in jobs if job.is_unsent or not only_unsent]
        if found.together > 1:
            jobs = _of_whole_gangs(conn, bot, jobs, found.together)
        if not jobs:
            return []
        counters = Counters()
        cancelled = [job.seq for job in jobs]
        listed = {"jobs": encode([{"bot": bot, "seq": seq} for seq in cancelled])}
        # Copies first, as when a job is finished: one that is just being sent is a lease by then.
        moves.drop_copies(conn, "drop_copies_of_jobs", listed, counters)
        moves.withhold(conn, bot, [job.seq for job in jobs if job.is_unsent], counters)
        _add_outcomes(conn, bot, found, cancelled)
        moves.end_unanswered(conn, Event.JOB_HAS_OUTCOME, listed, counters)
        conn.execute(SQL["forget_unjudged"], {"bot": bot, "seqs": cancelled})
        conn.execute(SQL["count_cancelled"], {"bot": bot, "jobs": len(cancelled)})
        conn.execute(CYCLES["end_bots"], {"bots": [bot]})
        counters.note(bot, NO_GRID, "failed", len(jobs))
        counters.write(conn, API)
    return cancelled


def _of_whole_gangs(conn: Connection, bot: int, jobs: Sequence[_Job], together: int) -> list[_Job]:
    """Keep those whose gangs are cancelled whole, and let these gangs wait for nobody."""
    count = Counter(job.seq // together for job in jobs)
    whole = [number for number, found in count.items() if found == together]
    listed = encode([{"bot": bot, "number": number} for number in sorted(whole)])
    conn.execute(GANGS["disband"], {"gangs": listed})
    return [job for job in jobs if job.seq // together in whole]


def _add_outcomes(conn: Connection, bot: int, found: _Bot, seqs: Sequence[int]) -> None:
    count = encode([{"bot": bot, "done": 0, "failed": len(seqs)}])
    (numbered,) = fetch(conn, _Numbered, CYCLES["number_outcomes"], {"bots": count})
    rows = [
        {
            "bot": bot,
            "seq": seq,
            "round": found.round,
            "reason": JOB_CANCELLED,
            "n": n,
            "credit": 0.0,
        }
        for n, seq in enumerate(seqs, numbered.last + 1)
    ]
    conn.execute(CYCLES["add_outcomes"], {"outcomes": encode(rows), "done": encode([])})
    if found.has_events:
        told = encode([{"bot": bot, "events": len(seqs), "provisional": 0, "doubt": 0.0}])
        (numbered,) = fetch(conn, _Numbered, EVENTS["number_events"], {"bots": told})
        events = [
            {"bot": bot, "n": n, "seq": seq, "kind": "failed"}
            for n, seq in enumerate(seqs, numbered.last + 1)
        ]
        conn.execute(EVENTS["add_events"], {"events": encode(events)})
