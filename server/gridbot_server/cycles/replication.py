"""The replication cycle: further copies for speed, in the tail of a BOT (paper Algorithm 2)."""

from __future__ import annotations

from typing import Any

from gridbot_policies import Ads, PolicySet
from gridbot_policies.classad import Record, record
from gridbot_server.buffer.layout import BotSnapshot
from gridbot_server.matching import ads
from gridbot_server.matching.policies import bot_policies
from gridbot_server.storage import moves, siblings, sql
from gridbot_server.storage.counters import CYCLES, Counters
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode

SQL = sql.load("cycles.sql")

SAMPLE = 200  # jobs of one BOT that are looked at in one cycle


def run_once(conn: Connection, now: float) -> int:
    """Queue copies of running jobs whose BOTs want them; return how many.

    Only where few jobs are unsent: otherwise copies would compete with first copies for hosts.
    """
    count = 0
    queue = _queue_ad(conn)
    for row in conn.execute(SQL["tails"]).fetchall():
        bot, policy, most, name, owner, signed = row[:6]
        state = _state(bot, *row[6:])
        if state.unsent < max(1, state.running):
            with conn.transaction():
                bot_ad = ads.bot_ad(state, name, owner, signed, now)
                count += _replicate(conn, bot, bot_policies(name, policy), most, bot_ad, queue, now)
    return count


def wants_copy(policies: PolicySet, bot: Record, queue: Record, job: Record, now: float) -> bool:
    """Whether ReplicationRequirements asks for another copy; no host takes part in it."""
    return policies.wants_replica(Ads(record({}), bot, queue, job, now))


def _replicate(
    conn: Connection,
    bot: int,
    policies: PolicySet,
    most: int,
    bot_ad: Record,
    queue: Record,
    now: float,
) -> int:
    sample = conn.execute(SQL["running_jobs"], {"bot": bot, "most": most, "limit": SAMPLE})
    jobs = [(bot, seq) for seq, _ in sample.fetchall()]
    if not jobs:
        return 0
    details = siblings.describe(conn, jobs)
    chosen = [
        (_, seq)
        for _, seq in jobs
        if wants_copy(
            policies, bot_ad, queue, ads.job_ad(bot, seq, details[bot, seq]["replicas"], now), now
        )
    ]
    return _queue_copies(conn, bot, chosen) if chosen else 0


def _queue_copies(conn: Connection, bot: int, jobs: list[tuple[int, int]]) -> int:
    """Queue a copy of each job that still runs and has none queued."""
    # As the transitioner does: it may have finished some of the jobs meanwhile, or numbered copies.
    conn.execute(SQL["lock_bots"], {"bots": [bot]})
    listed = encode([{"bot": bot, "seq": seq} for bot, seq in jobs])
    rows = [
        {"bot": bot, "seq": seq, "replica": replica, "round": round_, "why": "tail", "prio": 0}
        for bot, seq, round_, replica in conn.execute(SQL["next_replicas"], {"jobs": listed})
    ]
    counters = Counters()
    added = moves.add_copies(conn, rows, counters)
    counters.write(conn, CYCLES)
    return added


def _queue_ad(conn: Connection) -> Record:
    row = conn.execute(SQL["job_queue"]).fetchone()
    assert row is not None
    return record({"BOTsInQueue": row[0], "JobsInQueue": row[1]})


def _state(bot: int, version: int, owner: int, size: int, done: int, failed: int,
           created_at: float, turnaround: float | None, first: int, sent: int, back: int,
           queued: int) -> BotSnapshot:  # fmt: skip
    running: Any = max(0, sent - back)
    return BotSnapshot(
        bot, version, owner, size, size - first, max(0, queued), running, done, failed, True,
        created_at, turnaround,
    )  # fmt: skip
