"""BOTs go away: those that were deleted, and those that were kept long enough; then their groups.

A deleted BOT is out of everybody's sight at once.  Its rows go in batches, from its last job to its
first, each batch in a transaction with all that belongs to its jobs; so a crash leaves a smaller
BOT, which goes on shrinking, and what must be true of the database is true in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.moves import SQL as MOVES
from gridbot_server.storage.rows import fetch_one, fetch_values

SQL = sql.load("retention.sql")

# No transaction lasts so long (`db.TIMEOUTS`): none is left that saw the BOT before it was deleted.
SETTLED = timedelta(minutes=5)
JOBS = 2000  # of one batch
PASS_SECONDS = 0.5  # of batches one after the other, before others have their turn

_PARTS = (
    "remove_outputs", "remove_uploads", "remove_trickles", "remove_comparisons", "remove_kinds",
    "remove_known_answers", "remove_known_outputs",
    "remove_provisional", "remove_outcomes", "remove_reuse", "remove_wake_ups", "remove_job_parts",
    "remove_jobs", "shrink",
)  # fmt: skip
_REST = (
    "remove_ranges", "remove_counters", "remove_events", "remove_group_runs", "remove_appraisal",
    "remove_policies", "remove_derivation",
    "remove_bot",
)  # fmt: skip


class _Deleted(NamedTuple):
    """A deleted BOT, and how many of its jobs are left."""

    id: int
    size: int


def delete_kept_too_long(conn: Connection, days: int, limit: int = 100) -> int:
    """Delete up to `limit` BOTs that ended more than `days` ago; return how many."""
    with conn.transaction():
        old = {"days": days, "limit": limit}
        bots = fetch_values(conn, int, SQL["lock_kept_too_long"], old)
        if bots:
            conn.execute(SQL["delete"], {"bots": bots})
    return len(bots)


def remove_empty_groups(conn: Connection, limit: int = 1000) -> int:
    """Remove up to `limit` groups whose last BOT is gone; return how many."""
    with conn.transaction():
        groups = fetch_values(conn, int, SQL["lock_empty_groups"], {"limit": limit})
        return conn.execute(SQL["remove_groups"], {"groups": groups}).rowcount if groups else 0


def run_once(conn: Connection, clock: Callable[[], float] = time.monotonic) -> int:
    """Remove rows of deleted BOTs, batch after batch, for half a second; return how many went.

    `clock` gives seconds.  Batches take longer on a busy database, so fewer are made there.
    """
    removed, ends_at = 0, clock() + PASS_SECONDS
    while count := remove_rows(conn):
        removed += count
        if clock() >= ends_at:
            break
    return removed


def remove_rows(conn: Connection, settled: timedelta = SETTLED, jobs: int = JOBS) -> int:
    """Remove the last jobs of a deleted BOT, at most so many, or what is left of it without jobs.

    Return how many rows of jobs and BOTs went.
    """
    with conn.transaction():
        found = fetch_one(conn, _Deleted, SQL["next"], {"settled": settled})
        if found is None:
            return 0
        bot, size = found.id, found.size
        first = max(0, size - jobs)
        conn.execute(SQL["plan_by_keys"])
        jobs_of_bot = {"bot": bot, "first": first, "size": size}
        # Replicas go before what hangs on them, jobs after all that speaks of them.
        conn.execute(MOVES["remove_ended"], jobs_of_bot)
        for part in _PARTS:
            conn.execute(SQL[part], jobs_of_bot)
        if first == 0:
            for part in _REST:
                conn.execute(SQL[part], {"bot": bot})
    return size - first + (first == 0)
