"""The transitioner alone: what a decision costs when one process makes them, and when two do."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import click
import psutil

from gridbot_server.cycles import transitioner
from gridbot_server.cycles.parts import BotPart
from gridbot_server.storage import db

from .harness.command import measurement, quick_option, several
from .harness.database import Database, bare_database
from .harness.installation import BenchFailed
from .harness.windows import Row

BOTS, HOSTS, OWNERS = 16, 256, 32
_LOOK_SECONDS = 0.005

# Answers of all hosts to all BOTs, so that all transitioners change the same rows of hosts.
_ADD_ANSWERS = """
WITH made AS (
    INSERT INTO bot (owner, name, submit_key, state, manifest, size, fed)
    SELECT (SELECT min(id) FROM owner), 'bench', gen_random_uuid()::text, 'running', '{}', %(jobs)s,
           %(jobs)s FROM generate_series(1, %(bots)s)
    RETURNING id
), replicas AS (
    INSERT INTO ended (bot, seq, replica, round, why, how, client, host, owner, sent_at, digest,
                       wall_seconds, cpu_seconds)
    SELECT made.id, n, 1, 0, 'first', 'success', c.id, c.host, c.owner, now(), '\\x42', 1, 1
      FROM made CROSS JOIN generate_series(0, %(jobs)s - 1) AS n
      JOIN (SELECT id, host, owner, row_number() OVER (ORDER BY id) - 1 AS place FROM client) AS c
        ON c.place = (n + made.id) %% %(hosts)s
)
INSERT INTO pending (bot, seq)
SELECT made.id, n FROM generate_series(0, %(jobs)s - 1) AS n CROSS JOIN made
"""
_DECIDED = "SELECT count(*) FROM outcome"
_WAITING = """
SELECT count(*) FILTER (WHERE wait_event_type = 'Lock'), count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND application_name = 'gridbot-transitioner'
   AND state <> 'idle'
"""


class _Used(NamedTuple):
    """What a transitioner used, in seconds of CPU time, and what it decided."""

    jobs: int
    python: float
    database: float


@measurement()
@several("--processes", (1, 2), "Processes that decide")
@click.option("--jobs", type=click.IntRange(1000), default=64_000, show_default=True,
              help="Jobs of a round.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), default=6, show_default=True)
@quick_option()
def transitions(processes: Sequence[int], jobs: int, rounds: int, quick: bool) -> list[Row]:
    """Decisions on answers of the same hosts to 16 BOTs, by one process and by several in turn."""
    jobs, rounds = (1600, 2) if quick else (jobs, rounds)
    found: dict[int, list[Row]] = {count: [] for count in processes}
    context = get_context("spawn")
    with bare_database(durable=True) as (conn, dsn), \
            ProcessPoolExecutor(max(processes), context) as pool:  # fmt: skip
        Database(conn).add_hosts(HOSTS, OWNERS)
        conn.execute("ANALYZE")
        for number in range(-1, rounds):  # one to warm up
            order = processes if number % 2 else list(reversed(processes))
            for count in order:
                row = _round(conn, dsn, pool, count, jobs)
                if number >= 0:
                    found[count].append(row)
    return [_median(count, rows, found[processes[0]]) for count, rows in found.items()]


def _round(
    conn: db.PostgresConnection, dsn: str, pool: ProcessPoolExecutor, count: int, jobs: int
) -> dict[str, float]:
    (before,) = conn.execute(_DECIDED).fetchone() or (0,)
    each = jobs // BOTS
    conn.execute(_ADD_ANSWERS, {"jobs": each, "bots": BOTS, "hosts": HOSTS})
    conn.execute("ANALYZE pending, ended, bot")
    conn.execute("CHECKPOINT")
    began = time.monotonic()
    running = [pool.submit(decide, dsn, number, count) for number in range(count)]
    waiting = _watch(conn, running)
    seconds = time.monotonic() - began
    used = [future.result() for future in running]
    (after,) = conn.execute(_DECIDED).fetchone() or (0,)
    if after - before != each * BOTS or sum(item.jobs for item in used) != each * BOTS:
        raise BenchFailed(f"{after - before} of {each * BOTS} jobs have an outcome")
    return {
        "jobs_per_s": each * BOTS / seconds,
        "python_us_per_job": 1e6 * sum(item.python for item in used) / (each * BOTS),
        "database_us_per_job": 1e6 * sum(item.database for item in used) / (each * BOTS),
        "lock_wait_share": waiting["locked"] / max(1, waiting["busy"]),
    }


def decide(dsn: str, number: int, of: int) -> _Used:
    """Settle all wake-ups of a part, as a process of its own does."""
    with db.connect(dsn, "gridbot-transitioner", autocommit=True) as conn:
        backend = psutil.Process(conn.info.backend_pid)
        transitioner.run_once(conn, BotPart(number, of), limit=1)  # plans
        began, before, jobs = time.process_time(), backend.cpu_times(), 1
        while found := transitioner.run_once(conn, BotPart(number, of)):
            jobs += found
        after = backend.cpu_times()
        database = after.user + after.system - before.user - before.system
        return _Used(jobs, time.process_time() - began, database)


def _watch(conn: db.PostgresConnection, running: Sequence[Future[_Used]]) -> Counter[str]:
    """Look again and again at who waits for a lock, until all have ended."""
    seen: Counter[str] = Counter()
    while not all(future.done() for future in running):
        locked, busy = conn.execute(_WAITING).fetchone() or (0, 0)
        seen.update({"locked": locked, "busy": busy})
        time.sleep(_LOOK_SECONDS)
    return seen


def _median(count: int, rows: Sequence[Row], first: Sequence[Row]) -> Row:
    """The medians of a number of processes, and those of its rounds beside the first number's."""
    cost = [row["python_us_per_job"] + row["database_us_per_job"] for row in rows]
    beside = [row["python_us_per_job"] + row["database_us_per_job"] for row in first]
    ratios = [one / other for one, other in zip(cost, beside, strict=True)]
    return {
        "processes": count,
        **{name: statistics.median(row[name] for row in rows) for name in rows[0]},
        "us_per_job": statistics.median(cost),
        "cpu_to_first": statistics.median(ratios),
        "cpu_to_first_least": min(ratios),
        "cpu_to_first_most": max(ratios),
    }
