"""How fast the rows of deleted BOTs go, and whether tables stay flat while jobs come and go."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

import click

from gridbot_server.settings import Settings
from gridbot_server.storage import db

from .harness.command import measurement, quick_option
from .harness.database import bare_database
from .harness.installation import BenchFailed
from .harness.windows import Row

# One batch each second comes, and goes when it is so old.
KEPT_SECONDS, WARM_UP_SECONDS, LOOK_SECONDS = 20, 60, 20
_PATIENCE_SECONDS = 300.0
_MB = 1 << 20

_ADD_BOT = """
INSERT INTO bot (owner, name, submit_key, state, manifest, size, fed, done, outcomes, ended_at)
SELECT min(id), 'bench', gen_random_uuid()::text, 'done', '{}', %(jobs)s, %(jobs)s, %(jobs)s,
       %(jobs)s, now() FROM owner RETURNING id
"""
# All that a job of one replica leaves: its arguments, its answer with an output, its outcome.
_ADD_JOBS = """
WITH jobs AS (
    INSERT INTO job (bot, seq, args)
    SELECT %(bot)s, n, jsonb_build_object('i', n) FROM generate_series(0, %(jobs)s - 1) AS n
    RETURNING seq
), replicas AS (
    INSERT INTO ended (bot, seq, replica, round, why, how, client, host, owner, sent_at, valid,
                       digest, wall_seconds, cpu_seconds)
    SELECT %(bot)s, seq, 1, 0, 'first', 'success', 1, 1, 1, now(), true, '\\x42', 1, 1 FROM jobs
), outputs AS (
    INSERT INTO output (bot, seq, replica, name, sha256, size, content)
    SELECT %(bot)s, seq, 1, 'stdout', sha256(seq::text::bytea), 40, repeat('x', 40)::bytea
      FROM jobs
)
INSERT INTO outcome (bot, seq, round, canonical, n) SELECT %(bot)s, seq, 0, 1, seq + 1 FROM jobs
"""
# Long enough ago that no transaction can be left that saw it otherwise.
_DELETE = """
UPDATE bot SET state = 'cancelled', deleted_at = now() - interval '1 hour' WHERE id = ANY(%(bots)s)
"""
_SIZES = """
SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
 WHERE relname IN ('job', 'ended', 'outcome', 'output', 'bot')
"""
_LEFT = "SELECT coalesce(sum(size), 0)::bigint FROM bot WHERE deleted_at IS NOT NULL"


@measurement()
@click.option("--jobs", type=click.IntRange(1000), default=400_000, show_default=True,
              help="Jobs that are deleted alone.")  # fmt: skip
@click.option("--rate", type=click.IntRange(1), default=8000, show_default=True,
              help="Jobs a second that come and go.")  # fmt: skip
@click.option("--minutes", type=click.FloatRange(0), default=5.0, show_default=True,
              help="How long they do.")  # fmt: skip
@quick_option()
def deletion(jobs: int, rate: int, minutes: float, quick: bool) -> list[Row]:
    """Deletion by the server's own cycle: alone, and while as many jobs come as go."""
    if quick:
        jobs, rate, minutes = 10_000, 500, 0.0
    with bare_database(durable=True) as (conn, dsn), _daemons(dsn):
        return [_alone(conn, jobs), *([_in_and_out(conn, rate, minutes)] if minutes else [])]


def _alone(conn: db.PostgresConnection, jobs: int) -> Row:
    """Delete a BOT of so many jobs."""
    bot = add_bot(conn, jobs)
    conn.execute("ANALYZE")
    conn.execute("CHECKPOINT")
    began = time.monotonic()
    conn.execute(_DELETE, {"bots": [bot]})
    _await_deletion(conn)
    return {"case": "alone", "jobs_out_per_s": jobs / (time.monotonic() - began)}


def _in_and_out(conn: db.PostgresConnection, rate: int, minutes: float) -> Row:
    """Add jobs second by second, and delete those of a while ago."""
    kept: deque[int] = deque()
    sizes, left, added = list[float](), list[int](), 0
    began = time.monotonic()
    ends_at = began + WARM_UP_SECONDS + 60 * minutes
    looks_at = began + WARM_UP_SECONDS
    while (now := time.monotonic()) < ends_at:
        kept.append(add_bot(conn, rate))
        added += 1
        if len(kept) > KEPT_SECONDS:
            conn.execute(_DELETE, {"bots": [kept.popleft()]})
        if now >= looks_at:
            looks_at += LOOK_SECONDS
            sizes.append(_number(conn, _SIZES) / _MB)
            left.append(_number(conn, _LEFT))
        time.sleep(max(0.0, began + added - time.monotonic()))
    seconds = time.monotonic() - began
    waiting = _number(conn, _LEFT)
    _await_deletion(conn)
    return {
        "case": "in and out",
        "jobs_in_per_s": rate * added / seconds,
        "jobs_out_per_s": (rate * (added - len(kept)) - waiting) / seconds,
        "jobs_kept": rate * KEPT_SECONDS,
        "most_jobs_to_delete": max(left),
        "tables_mb": {"first": sizes[0], "most": max(sizes), "last": sizes[-1]},
        "minutes": seconds / 60,
    }


def add_bot(conn: db.PostgresConnection, jobs: int) -> int:
    """Add a BOT whose jobs are done."""
    bot = _number(conn, _ADD_BOT, {"jobs": jobs})
    conn.execute(_ADD_JOBS, {"jobs": jobs, "bot": bot})
    return bot


def _await_deletion(conn: db.PostgresConnection) -> None:
    gives_up_at = time.monotonic() + _PATIENCE_SECONDS
    while left := _number(conn, _LEFT):
        if time.monotonic() > gives_up_at:
            raise BenchFailed(f"{left} jobs are still there after {_PATIENCE_SECONDS:g} s")
        time.sleep(0.02)


def _number(
    conn: db.PostgresConnection, query: LiteralString, values: Mapping[str, int] | None = None
) -> int:
    (number,) = conn.execute(query, values).fetchone() or (0,)
    return int(number)


@contextmanager
def _daemons(dsn: str) -> Iterator[None]:
    """The process that runs the server's cycles, on this database."""
    with tempfile.TemporaryDirectory(prefix="gridbot-bench-") as folder:
        settings = Settings(data=Path(folder), dsn=dsn)
        settings.make_directories()
        settings.save()
        with (settings.log / "daemons.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "gridbot_server.cycles.process", "--data", folder],
                stdout=log,
                stderr=log,
            )
        try:
            yield
        finally:
            process.terminate()
            process.wait()
