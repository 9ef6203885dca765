"""The command line of `scripts/bench`: one verb per measurement."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from . import policies, results, submit
from .installation import BenchFailed
from .table import show

MILLION = 1_000_000
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group()
def bench() -> None:
    """Measure this GridBot on a server of its own, on the loopback address."""


@bench.command("submit")
@click.option("--jobs", type=click.IntRange(1), default=MILLION, help="Jobs of the range.")
@click.option("--items", type=click.IntRange(1), default=MILLION, help="Lines of the CSV table.")
@click.option("--requests", type=click.IntRange(3), default=200, help="Host requests to time.")
@json_option
def submit_command(jobs: int, items: int, requests: int, as_json: bool) -> None:
    """A large BOT: seconds to submit, memory, a host's request before and after."""
    _report("submit", lambda: submit.run(jobs, items, requests), as_json)


@bench.command("results")
@click.option("--jobs", type=click.IntRange(1), default=100_000)
@click.option("--clients", type=click.IntRange(1, 64), default=16)
@click.option("--jobs-per-request", type=click.IntRange(1, 200), default=20)
@click.option("--limit-seconds", type=click.FloatRange(1), default=300.0)
@json_option
def results_command(
    jobs: int, clients: int, jobs_per_request: int, limit_seconds: float, as_json: bool
) -> None:
    """A BOT executed by fast clients, then its results as one stream, all compared."""
    _report("results", lambda: results.run(jobs, clients, jobs_per_request, limit_seconds), as_json)


@bench.command("policies")
@click.option("--rounds", type=click.IntRange(1), default=9, help="Timings of each side, in turn.")
@json_option
def policies_command(rounds: int, as_json: bool) -> None:
    """Policies per host request, 50 BOTs, beside HTCondor's ClassAd library."""
    _report("policies", lambda: policies.run(rounds), as_json)


def _report(name: str, measure: Callable[[], list[dict[str, Any]]], as_json: bool) -> None:
    try:
        show(name, measure(), as_json)
    except BenchFailed as error:
        sys.exit(str(error))
