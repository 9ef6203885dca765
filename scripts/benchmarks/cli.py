"""The command line of `scripts/bench`: one verb per measurement."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import click

from . import compare, dispatch, layers, overload, policies, results, storm, submit, validate
from .columns import COLUMNS
from .dispatch import JOBS_PER_RPC, Size
from .installation import CHECKOUT, BenchFailed
from .table import show, show_lines

MILLION = 1_000_000
QUICK = Size(rounds=1, seconds=0.5, requests=5000)  # shows that it works, and no more
Command = Callable[..., Any]

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


# ------------------------------------------------------------------------- host requests


def sized(rounds: int, seconds: float, requests: int) -> Callable[[Command], Command]:
    """Give a command the argument `size`, with options that change it."""
    options = (
        click.option("--rounds", type=click.IntRange(1), default=rounds, show_default=True),
        click.option("--seconds", type=click.FloatRange(0.1), default=seconds, show_default=True,
                     help="Of each measurement, at most."),
        click.option("--requests", type=click.IntRange(1), default=requests, show_default=True,
                     help="In each measurement, at most."),
        click.option("--quick", is_flag=True, help="Only show that it works."),
        json_option,
    )  # fmt: skip

    def decorate(command: Command) -> Command:
        @wraps(command)
        def with_size(rounds: int, seconds: float, requests: int, quick: bool, **rest: Any) -> None:
            size = QUICK if quick else Size(rounds, seconds, requests)
            command(size=size, quick=quick, **rest)

        for option in reversed(options):
            with_size = option(with_size)
        return with_size

    return decorate


def _several(name: str, default: Sequence[int], text: str) -> Callable[[Command], Command]:
    return click.option(name, type=click.IntRange(1), multiple=True, default=default,
                        show_default=True, help=f"{text}; may be repeated.")  # fmt: skip


jobs_per_rpc_option = _several("--jobs-per-rpc", (1, 5, 20), "Jobs that a request asks for")
concurrency_option = _several("--concurrency", (1, 16, 64), "Requests under way at once")


@bench.command("dispatch")
@jobs_per_rpc_option
@concurrency_option
@click.option("--jobs", type=click.IntRange(1000), default=MILLION, help="Jobs in the queue.")
@sized(rounds=5, seconds=3.0, requests=20_000)
def dispatch_command(
    jobs_per_rpc: Sequence[int], concurrency: Sequence[int], jobs: int, size: Size, quick: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Host requests that report their last jobs and ask for more, beside the floor."""
    if quick:
        jobs_per_rpc, concurrency, jobs = (5,), (16,), 20_000
    measure = partial(dispatch.dispatch, size, jobs_per_rpc, concurrency, jobs)
    _report_lines("dispatch", measure, as_json)


@bench.command("compare")
@click.argument("base")
@click.argument("measurement", type=click.Choice(["dispatch"]), default="dispatch")
@click.option("--pairs", type=click.IntRange(1), default=10, show_default=True)
@jobs_per_rpc_option
@_several("--concurrency", (64,), "Requests under way at once")
@click.option("--requests", type=click.IntRange(1), default=5000, show_default=True,
              help="In each measurement.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(0.1), default=6.0, show_default=True,
              help="Of each measurement, at most.")  # fmt: skip
@click.option("--within", "limit", type=float, default=2.0, show_default=True,
              help="Percent by which a request may cost more.")  # fmt: skip
@json_option
def compare_command(
    base: str, measurement: str, pairs: int, jobs_per_rpc: Sequence[int],  # noqa: ARG001
    concurrency: Sequence[int], requests: int, seconds: float, limit: float, as_json: bool,
) -> None:  # fmt: skip
    """CPU time of a host request beside that of the commit BASE, in interleaved pairs."""

    def measure() -> list[dict[str, Any]]:
        python = compare.base_python(CHECKOUT, base)
        for line in compare.other_packages(python):
            click.echo(f"another version: {line}", err=True)
        size = Size(pairs, seconds, requests)
        return compare.compare(
            python, size, jobs_per_rpc, concurrency, limit, partial(click.echo, err=True)
        )

    show_lines(f"compare with {base}", _rows(measure), as_json, compare.COLUMNS)


@bench.command("boinc")
@jobs_per_rpc_option
@concurrency_option
@click.option("--jobs", type=click.IntRange(1000), default=MILLION, help="Jobs in the queue.")
@sized(rounds=5, seconds=3.0, requests=20_000)
def boinc_command(
    jobs_per_rpc: Sequence[int], concurrency: Sequence[int], jobs: int, size: Size, quick: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """The same from stock BOINC clients, in their protocol, beside the floor."""
    if quick:
        jobs_per_rpc, concurrency, jobs = (5,), (16,), 20_000
    measure = partial(dispatch.boinc, size, jobs_per_rpc, concurrency, jobs)
    _report_lines("boinc", measure, as_json)


@bench.command("layers")
@click.option("--jobs-per-rpc", type=click.IntRange(1), default=JOBS_PER_RPC, show_default=True)
@click.option("--batch", type=click.IntRange(1), default=24, show_default=True,
              help="Requests in one transaction.")  # fmt: skip
@click.option("--requests", type=click.IntRange(100), default=6000, show_default=True)
@click.option("--quick", is_flag=True, help="Only show that it works.")
@json_option
def layers_command(
    jobs_per_rpc: int, batch: int, requests: int, quick: bool, as_json: bool
) -> None:
    """Where the CPU time of a host request goes, by layer and by function."""
    requests = 500 if quick else requests
    _report("layers", partial(layers.layers, jobs_per_rpc, batch, requests), as_json)


@bench.command("floor")
@jobs_per_rpc_option
@concurrency_option
@sized(rounds=5, seconds=3.0, requests=20_000)
def floor_command(
    jobs_per_rpc: Sequence[int], concurrency: Sequence[int], size: Size, quick: bool, as_json: bool
) -> None:
    """A view that answers with what it got, under the same gunicorn settings."""
    if quick:
        jobs_per_rpc, concurrency = (5,), (16,)
    _report_lines("floor", partial(dispatch.floors, size, jobs_per_rpc, concurrency), as_json)


@bench.command("queue")
@_several("--queued", (10**4, 10**6, 10**7), "Jobs in the queue")
@sized(rounds=5, seconds=3.0, requests=3000)
def queue_command(queued: Sequence[int], size: Size, quick: bool, as_json: bool) -> None:
    """The cost of a request and of the feeder as the queue grows."""
    levels = (10**3, 10**4) if quick else queued
    _report_lines("queue", partial(dispatch.queue, size, levels), as_json)


@bench.command("bots")
@_several("--bots", (1, 10, 50, 500), "BOTs in the queue")
@sized(rounds=5, seconds=3.0, requests=2000)
def bots_command(bots: Sequence[int], size: Size, quick: bool, as_json: bool) -> None:
    """The cost of a request as BOTs with five policies each become more."""
    _report_lines("bots", partial(dispatch.bots, size, (1, 10) if quick else bots), as_json)


@bench.command("hosts")
@_several("--hosts", (10**2, 10**5), "Hosts that the server knows")
@sized(rounds=5, seconds=3.0, requests=3000)
def hosts_command(hosts: Sequence[int], size: Size, quick: bool, as_json: bool) -> None:
    """The cost of a request as known hosts become more."""
    known = (10**2, 10**3) if quick else hosts
    _report_lines("hosts", partial(dispatch.hosts, size, known), as_json)


@bench.command("validate")
@click.option("--hosts", type=click.IntRange(2), default=1000, show_default=True)
@click.option("--jobs", type=click.IntRange(1000), default=MILLION, help="Jobs in the queue.")
@sized(rounds=5, seconds=12.0, requests=100_000)
def validate_command(hosts: int, jobs: int, size: Size, quick: bool, as_json: bool) -> None:
    """A quorum of two among volunteers: jobs validated per second, and how late."""
    if quick:
        hosts, jobs = 100, 20_000
    _report_lines("validate", partial(validate.validate, size, hosts, jobs), as_json)


@bench.command("storm")
@click.option("--hosts", type=click.IntRange(1), default=100_000, show_default=True)
@_several("--outage-seconds", (60, 600, 3600, 86_400), "How long the server was away")
@click.option("--per-second", type=click.FloatRange(1), default=1000.0, show_default=True,
              help="Requests that the server answers.")  # fmt: skip
@click.option("--poll-seconds", type=click.FloatRange(1), default=600.0, show_default=True,
              help="Between two requests of a host when all goes well.")  # fmt: skip
@click.option("--quick", is_flag=True, help="Fewer hosts.")
@json_option
def storm_command(
    hosts: int, outage_seconds: Sequence[int], per_second: float, poll_seconds: float, quick: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Every host comes back after an outage: a simulation with the clients' real back-off."""
    hosts = min(hosts, 5000) if quick else hosts
    storms = [storm.Storm(hosts, away, per_second, poll_seconds) for away in outage_seconds]
    _report("storm", partial(storm.run, storms), as_json)


@bench.command("overload")
@click.option(
    "--seconds",
    type=click.FloatRange(1, 600),
    default=60.0,
    show_default=True,
    help="Of the flood.",
)
@click.option(
    "--plateau-seconds",
    type=click.FloatRange(1, 60),
    default=5.0,
    show_default=True,
    help="Of the plateau, before and after it.",
)
@click.option(
    "--times",
    type=click.FloatRange(0.1, 100),
    default=10.0,
    show_default=True,
    help="Arrivals, as a multiple of the plateau.",
)
@click.option("--hosts", type=click.IntRange(100), default=10_000, show_default=True)
@click.option(
    "--processes",
    type=click.IntRange(1, 16),
    default=2,
    show_default=True,
    help="That send the flood.",
)
@click.option(
    "--sockets",
    type=click.IntRange(16, 16_000),
    default=4000,
    show_default=True,
    help="Open at once, in all of them.",
)
@click.option("--keep", is_flag=True, help="Keep connections, as a proxy in front does.")
@click.option("--jobs", type=click.IntRange(1000), default=2 * MILLION, help="Jobs in the queue.")
@click.option("--quick", is_flag=True, help="Only show that it works.")
@json_option
def overload_command(
    seconds: float, plateau_seconds: float, times: float, hosts: int, processes: int, sockets: int,
    keep: bool, jobs: int, quick: bool, as_json: bool,
) -> None:  # fmt: skip
    """Arrivals at ten times what the server can answer: what it does then, and afterwards."""
    if quick:
        seconds, plateau_seconds, hosts, jobs = 3.0, 1.0, 2000, 100_000
    size = overload.Size(seconds, plateau_seconds, times, hosts, processes, sockets, keep)
    _report("overload", partial(overload.overload, size, jobs), as_json)


Measure = Callable[[], list[dict[str, Any]]]


def _report(name: str, measure: Measure, as_json: bool) -> None:
    show(name, _rows(measure), as_json)


def _report_lines(name: str, measure: Measure, as_json: bool) -> None:
    show_lines(name, _rows(measure), as_json, COLUMNS)


def _rows(measure: Measure) -> list[dict[str, Any]]:
    try:
        return measure()
    except BenchFailed as error:
        sys.exit(str(error))


if __name__ == "__main__":
    bench()
