"""What the SQL of a BOT's history takes, with few and with many jobs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import psutil

from gridbot_server.history import curves, notable, sums
from gridbot_server.history.steps import DAY, HOUR, span
from gridbot_server.storage import db

from .harness.command import measurement, quick_option, several
from .harness.database import bare_database
from .harness.windows import Row

GRIDS, DAYS, LOOKS = 3, 3, 30
# What the page shows: the last hours by minutes, and all days.
_SPANS = {"6 hours": 6 * HOUR, "1 day": DAY, "3 days": DAYS * DAY}

_ADD_BOT = """
INSERT INTO bot (owner, name, submit_key, state, manifest, size, done, created_at)
SELECT id, 'bench', gen_random_uuid()::text, 'running', '{}', %(jobs)s, %(jobs)s,
       now() - make_interval(days => %(days)s)
  FROM owner RETURNING id
"""
_ADD_JOBS = """
WITH jobs AS (
    INSERT INTO job (bot, seq, args)
    SELECT %(bot)s, n, '{}' FROM generate_series(0, %(jobs)s - 1) AS n
    RETURNING seq
), replicas AS (
    INSERT INTO ended (bot, seq, replica, round, why, how, client, host, owner, sent_at, valid)
    SELECT %(bot)s, seq, 1, 0, 'first', 'success', 1, 1, 1, now(), true FROM jobs
)
INSERT INTO outcome (bot, seq, round, canonical, n) SELECT %(bot)s, seq, 0, 1, seq + 1 FROM jobs
"""
# Each minute is busy on each grid, whatever the number of jobs.
_ADD_HISTORY = """
WITH minutes AS (
    SELECT at, 'grid' || grid AS grid
      FROM generate_series(date_trunc('minute', now()) - make_interval(days => %(days)s),
                           date_trunc('minute', now()), interval '1 minute') AS at,
           generate_series(1, %(grids)s) AS grid
), failed AS (
    INSERT INTO failure_history (bot, step, at, grid, reason, errors)
    SELECT %(bot)s, 60, at, grid, 'exit_nonzero', 1 FROM minutes
)
INSERT INTO bot_history (bot, step, at, grid, sent, succeeded, errors, done, cpu_seconds)
SELECT %(bot)s, 60, at, grid, 5, 4, 1, 4, 60 FROM minutes
"""


@measurement()
@several("--jobs", (10**3, 10**6), "Jobs of the BOT")
@quick_option()
def history(jobs: Sequence[int], quick: bool) -> list[Row]:
    """The SQL of a BOT's history, three days of busy minutes on three grids."""
    levels = (10**2, 10**3) if quick else jobs
    with bare_database() as (conn, _):
        bots = {level: bot_with_history(conn, level) for level in levels}
        conn.execute("UPDATE history_sum SET until = until - make_interval(days => %s)", [DAYS + 1])
        while sums.run_once(conn) or not _are_summed(conn):
            pass
        conn.execute("ANALYZE")
        times: dict[tuple[int, str], list[tuple[float, float]]] = {
            (level, shown): [] for level in levels for shown in _SPANS
        }
        for _ in range(LOOKS):
            for (level, shown), found in times.items():
                found.append(_look(conn, bots[level], _SPANS[shown]))
    return [
        {
            "jobs": level,
            "shown": shown,
            "ms": 1000 * statistics.median(seconds for seconds, _ in found),
            "least ms": 1000 * min(seconds for seconds, _ in found),
            "cpu ms": 1000 * statistics.mean(cpu for _, cpu in found),
        }
        for (level, shown), found in times.items()
    ]


def _cpu(conn: db.PostgresConnection) -> float:
    """CPU seconds of the database's process and of our own."""
    used = psutil.Process(conn.info.backend_pid).cpu_times()
    return used.user + used.system + time.process_time()


def _look(conn: db.PostgresConnection, bot: int, seconds: int) -> tuple[float, float]:
    """Do all that `GET /bots/ID/history` asks the database; return seconds, and those of CPU."""
    began, used = time.perf_counter(), _cpu(conn)
    found = curves.subject(conn, bot)
    assert found is not None, "it was added"
    made = curves.sums(conn)
    wanted = span(made.now - seconds, made.now, None, made.now)
    grids = curves.of_bot(conn, bot, wanted, made)
    curves.failures(conn, bot, wanted, made)
    curves.left(conn, bot, found.jobs_left, wanted, made, grids)
    for name in ("examples", "slowest"):
        conn.execute(notable.SQL[name], {"bot": bot}).fetchall()
    return time.perf_counter() - began, _cpu(conn) - used


def bot_with_history(conn: db.PostgresConnection, jobs: int) -> int:
    """Add a BOT whose jobs are done, with three days of busy minutes."""
    values = {"jobs": jobs, "days": DAYS, "grids": GRIDS}
    (bot,) = conn.execute(_ADD_BOT, values).fetchone() or (0,)
    conn.execute(_ADD_JOBS, {**values, "bot": bot})
    conn.execute(_ADD_HISTORY, {**values, "bot": bot})
    return int(bot)


def _are_summed(conn: db.PostgresConnection) -> bool:
    made = curves.sums(conn)
    return made.now - made.days < DAY + HOUR and made.now - made.hours < 2 * HOUR
