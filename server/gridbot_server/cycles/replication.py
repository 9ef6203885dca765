"""The replication cycle: speculative replicas in the tail phase of a BOT (paper Algorithm 2).

Reads what runs, asks `speculation` which jobs want another replica, and queues those.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from gridbot_policies import Ads
from gridbot_policies.classad import Record, record
from gridbot_server.cycles import speculation
from gridbot_server.matching import ads
from gridbot_server.matching.policies import bot_policies
from gridbot_server.matching.spending import REASON, Spending
from gridbot_server.storage import moves, siblings, sql, suspension
from gridbot_server.storage.counters import CYCLES, Counters
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode, fetch, fetch_only

SQL = sql.load("cycles.sql")

SAMPLE = 200  # jobs of one BOT that are looked at in one cycle
_CHANCE = random.Random()  # noqa: S311  # samples jobs, guards nothing


class _Bot(NamedTuple):
    """A BOT in its tail phase; the figures are those of its ad."""

    bot: int
    name: str
    owner: int
    owner_name: str
    signed: bool
    policy: str
    version: int
    max_replicas: int
    size: int
    done: int
    failed: int
    unsent: int
    running: int
    tail: bool
    created_at: float
    mean_turnaround: float | None


class _Queue(NamedTuple):
    bots: int
    jobs: int


class _Job(NamedTuple):
    bot: int
    seq: int


class _Next(NamedTuple):
    """The replica that a job would have next."""

    bot: int
    seq: int
    round: int
    replica: int


def run_once(
    conn: Connection,
    now: float,
    spending: Spending | None = None,
    chance: random.Random = _CHANCE,
) -> int:
    """Queue replicas of running jobs whose BOTs want them; return how many.

    What policies take is charged to `spending`, which is kept from pass to pass.  Jobs are sampled
    by `chance`.
    """
    count, spending = 0, spending or Spending()
    spending.begin()
    waiting = fetch_only(conn, _Queue, SQL["job_queue"])
    queue = record({"BOTsInQueue": waiting.bots, "JobsInQueue": waiting.jobs})
    for bot in fetch(conn, _Bot, SQL["tails"]):
        is_due = spending.is_due(bot.owner, bot.bot)
        if is_due and speculation.has_idle_hosts(bot.unsent, bot.running):
            with conn.transaction():
                count += _replicate(conn, bot, queue, now, spending, chance)
    return count


def _replicate(
    conn: Connection,
    bot: _Bot,
    queue: Record,
    now: float,
    spending: Spending,
    chance: random.Random,
) -> int:
    policies = bot_policies(bot.name, bot.policy)
    if not policies.may_replicate:
        return 0
    wanted = {
        "bot": bot.bot,
        "most": bot.max_replicas,
        "limit": SAMPLE,
        "chance": chance.getrandbits(63),
    }
    sample = fetch(conn, _Job, SQL["running_jobs"], wanted)
    if not sample:
        return 0
    details = siblings.describe(conn, sample)
    jobs = {job: ads.job_ad(job.bot, job.seq, details[job]["replicas"], now) for job in sample}
    bot_ad = ads.bot_ad(bot, bot.name, bot.owner_name, bot.signed, now)

    def is_affordable(ads: Ads) -> bool:
        if spending.charge(bot.owner, bot.bot, ads):
            return spending.is_due(bot.owner, bot.bot)
        if spending.exceeded(bot.bot, bot.version):
            suspension.suspend(conn, bot.bot, bot.version, REASON)
        return False

    chosen = speculation.decide(policies, bot_ad, queue, jobs, now, is_affordable)
    return _queue_copies(conn, bot.bot, chosen) if chosen else 0


def _queue_copies(conn: Connection, bot: int, jobs: Sequence[_Job]) -> int:
    """Queue a copy of each job that still runs and has none queued."""
    # As the transitioner does: it may have finished some of the jobs meanwhile, or numbered copies.
    conn.execute(SQL["lock_bots"], {"bots": [bot]})
    listed = encode([job._asdict() for job in jobs])
    rows = [
        {**copy._asdict(), "why": "tail", "prio": 0}
        for copy in fetch(conn, _Next, SQL["next_replicas"], {"jobs": listed})
    ]
    counters = Counters()
    added = moves.add_copies(conn, rows, counters)
    counters.write(conn, CYCLES)
    return added
