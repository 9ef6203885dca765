"""The whole pipeline for jobs with a quorum of two: dispatch, reports, verdicts, outcomes."""

from __future__ import annotations

import time

import click

from .harness.command import jobs_option, measurement
from .harness.database import Database
from .harness.host_requests import COLUMNS, Size, sized
from .harness.installation import BenchFailed
from .harness.stages import COMMAND, POLICY, Server, prepared
from .harness.windows import OF_A_REQUEST, Row, median_row

OWNERS = 50  # whose hosts may not agree with themselves
JOBS_PER_RPC, CONCURRENCY = 5, 64
_DRAIN_SECONDS = 120.0
_LOOK_SECONDS = 0.05


@measurement(COLUMNS)
@click.option("--hosts", type=click.IntRange(2), default=1000, show_default=True)
@jobs_option()
@sized(rounds=5, seconds=12.0, requests=100_000)
def validate(hosts: int, jobs: int, size: Size, quick: bool) -> list[Row]:
    """A quorum of two among volunteers: jobs validated per second, and how late."""
    if quick:
        hosts, jobs = 100, 20_000
    with prepared(hosts, "--sign-on-submit", owners=OWNERS) as (place, known, load):
        known.widen_hosts()
        with place.session() as session:
            bot = session.submit(COMMAND, range(jobs), policy=POLICY, quorum=2).id
        stage = Server(place, load, known=known)
        stage.calm_down()
        rows = [_measure(stage, known, bot, size, hosts) for _ in range(size.rounds)]
    return [median_row(rows)]


def _measure(stage: Server, known: Database, bot: int, size: Size, hosts: int) -> Row:
    window = stage.measure(size.plan(stage.port, JOBS_PER_RPC, CONCURRENCY, hosts))
    drain_seconds = _drain(known)
    ended_at = window.began_at + window.seconds
    validated, lags = known.settled(bot, window.began_at, ended_at)
    cpu = sum(window.used.groups[name] for name in (*OF_A_REQUEST, "daemons"))
    return {
        **window.row(),
        "known_hosts": hosts,
        "validated_per_s": validated / window.seconds,
        "lag_seconds": dict(zip(("p50", "p99", "most"), lags, strict=True)),
        "drain_seconds": drain_seconds,
        "server_us_per_validated_job": 1e6 * cpu / max(1, validated),
    }


def _drain(known: Database) -> float:
    """Wait until every answer has been looked at; return how long that took."""
    began = time.monotonic()
    while waiting := known.pending():
        if time.monotonic() > began + _DRAIN_SECONDS:
            raise BenchFailed(f"{waiting} wake-ups still wait after {_DRAIN_SECONDS:g} s")
        time.sleep(_LOOK_SECONDS)
    return time.monotonic() - began
