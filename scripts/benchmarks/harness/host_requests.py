"""Measurements of host requests: how much is measured, their options, their columns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from itertools import product
from typing import Any

import click

from . import floor
from .command import Measure, quick_option, several
from .load.generator import Plan
from .stages import Server, Subject, bare, measure
from .windows import Row, median_row, ratios

JOBS_PER_RPC, CONCURRENCY = 5, 16  # where only one of each is measured

COLUMNS = {
    "queued": ["queued"],
    "BOTs": ["bots"],
    "hosts": ["known_hosts"],
    "asking": ["asking_hosts"],
    "jobs": ["jobs_per_rpc"],
    "conc.": ["concurrency"],
    "RPC/s": ["rpc_per_s"],
    "jobs/s": ["jobs_per_s"],
    "valid/s": ["validated_per_s"],
    "p50 ms": ["p50_ms"],
    "p99 ms": ["p99_ms"],
    "CPU µs": ["server_us_per_rpc"],
    "web": ["cpu_us_per_rpc", "gunicorn"],
    "database": ["cpu_us_per_rpc", "postgresql"],
    "feeder": ["cpu_us_per_rpc", "feeder"],
    "daemons": ["cpu_us_per_rpc", "daemons"],
    "load": ["cpu_us_per_rpc", "load"],
    "RPC/s ÷ floor": ["to_floor", "rpc_per_s"],
    "p99 ÷ floor": ["to_floor", "p99_ms"],
    "CPU ÷ first": ["to_first", "server_us_per_rpc"],
    "µs/valid": ["server_us_per_validated_job"],
    "lag p99 s": ["lag_seconds", "p99"],
    "lag most s": ["lag_seconds", "most"],
    "drain s": ["drain_seconds"],
    "machine": ["machine_share"],
    "others": ["others_share"],
    "empty": ["empty_share"],
}

_WARM_UP = 300  # requests
_COMPARED = ("rpc_per_s", "p99_ms", "server_us_per_rpc")

Cell = tuple[int, int]  # jobs per request, requests under way at once


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    rounds: int
    seconds: float  # of each measurement, at most
    requests: int  # in each measurement, at most

    def plan(
        self, port: int, jobs_per_rpc: int = JOBS_PER_RPC, concurrency: int = CONCURRENCY,
        hosts: int = 0,
    ) -> Plan:  # fmt: skip
        """A measurement of this size."""
        return Plan(
            port, concurrency, jobs_per_rpc, self.seconds, self.requests, hosts, warm_up=_WARM_UP
        )

    def jobs(self, jobs_per_rpc: int = JOBS_PER_RPC) -> int:
        """What one measurement can take out of the queue."""
        return (self.requests + _WARM_UP) * jobs_per_rpc


QUICK = Size(rounds=1, seconds=0.5, requests=5000)  # shows that it works, and no more


# ------------------------------------------------------------------------------- options


def sized(rounds: int, seconds: float, requests: int) -> Callable[[Measure], Measure]:
    """Give a measurement the arguments `size` and `quick`, with options that change them."""

    def decorate(command: Measure) -> Measure:
        @click.option("--rounds", type=click.IntRange(1), default=rounds, show_default=True)
        @click.option("--seconds", type=click.FloatRange(0.1), default=seconds, show_default=True,
                      help="Of each measurement, at most.")  # fmt: skip
        @click.option("--requests", type=click.IntRange(1), default=requests, show_default=True,
                      help="In each measurement, at most.")  # fmt: skip
        @quick_option()
        @wraps(command)
        def with_size(
            rounds: int, seconds: float, requests: int, quick: bool, **rest: Any
        ) -> list[Row]:
            size = QUICK if quick else Size(rounds, seconds, requests)
            return command(size=size, quick=quick, **rest)

        return with_size

    return decorate


def celled(concurrency: Sequence[int] = (1, 16, 64)) -> Callable[[Measure], Measure]:
    """Give a measurement the argument `cells`, with options for both parts of a cell."""

    def decorate(command: Measure) -> Measure:
        @several("--jobs-per-rpc", (1, 5, 20), "Jobs that a request asks for")
        @several("--concurrency", concurrency, "Requests under way at once")
        @wraps(command)
        def with_cells(
            jobs_per_rpc: Sequence[int], concurrency: Sequence[int], **rest: Any
        ) -> list[Row]:
            if rest.get("quick"):
                return command(cells=[(JOBS_PER_RPC, CONCURRENCY)], **rest)
            return command(cells=list(product(jobs_per_rpc, concurrency)), **rest)

        return with_cells

    return decorate


# ------------------------------------------------------------------------------- measures


def bare_plan(plan: Plan, port: int) -> Plan:
    """The same, of the bare web server."""
    return replace(plan, port=port, path=floor.PATH)


def beside_floor(ours: Server, plans: Sequence[Plan], rounds: int) -> list[Row]:
    """Measure each plan on a server, and on the bare web server in the same round."""
    with bare(ours.data) as web:
        pairs = ((Subject(ours, plan), Subject(web, bare_plan(plan, web.port))) for plan in plans)
        found = measure([subject for pair in pairs for subject in pair], rounds)
    return list(map(_beside_floor, found[::2], found[1::2]))


def _beside_floor(rows: Sequence[Row], floors: Sequence[Row]) -> Row:
    return {
        **median_row(rows),
        "to_floor": _ratios(rows, floors),
        "floor": {name: statistics.median(row[name] for row in floors) for name in _COMPARED},
    }


def beside_first(subjects: Sequence[Subject], rounds: int) -> list[Row]:
    """Measure subjects of which each is to cost what the first one costs."""
    found = measure(subjects, rounds)
    return [{**median_row(rows), "to_first": _ratios(rows, found[0])} for rows in found]


def _ratios(rows: Sequence[Row], to: Sequence[Row]) -> Row:
    return {name: ratios(rows, to, name) for name in _COMPARED}
