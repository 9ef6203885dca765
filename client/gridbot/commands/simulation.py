"""`gridbot policy simulate`, `compare`, `suggest`: what policies would do to a BOT.

The simulator comes with the server's packages, through the entry points `gridbot.simulator`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

import click

from gridbot.api.errors import BadInput
from gridbot.api.policy import read_policy
from gridbot.commands.options import FILE, as_json, print_json, say
from gridbot.show.simulation import comparison_page, simulation_page
from gridbot.show.suggestion import suggestion_page
from gridbot_client.installation import install_command
from gridbot_client.quantities import seconds

R = TypeVar("R")
Simulator = Callable[..., dict[str, Any]]

_MOST_JOBS, _MOST_HOSTS, _MOST_SEEDS = 10_000_000, 1_000_000, 1000
_MOST_POLICIES = 20
_KIND = re.compile(r"([A-Za-z][A-Za-z0-9_-]*):([0-9]{1,7})", re.ASCII)


class _Times(click.ParamType[tuple[float, float]]):
    """Two durations, as in 10m..15m, or one for all jobs."""

    name = "times"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        first, _, last = str(value).partition("..")
        try:
            low, high = seconds(first), seconds(last or first)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not 0 < low <= high:
            self.fail(f"{value}: times go from the lesser to the greater, above 0", param, ctx)
        return low, high


class _Hosts(click.ParamType[list[tuple[str, int]]]):
    """Kinds of hosts with their numbers, as in collaborative:2000,volunteers:500."""

    name = "hosts"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[tuple[str, int]]:
        found = []
        for part in str(value).split(","):
            match = _KIND.fullmatch(part.strip())
            if not match:
                self.fail(f"{part!r} is not a kind with a number, as in campus:200", param, ctx)
            found.append((match[1], int(match[2])))
        if not 0 < sum(number for _, number in found) <= _MOST_HOSTS:
            self.fail(f"{value}: between 1 and {_MOST_HOSTS:,} hosts", param, ctx)
        return found


def world_options(seeds: int) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Add the options that say what is simulated, and under how many seeds if none are given."""
    options = (
        click.option(
            "--jobs", type=click.IntRange(1, _MOST_JOBS), required=True, metavar="N",
            help="Number of jobs of the BOT.",
        ),
        click.option(
            "--time", type=_Times(), required=True, metavar="A..B",
            help="Time that a job takes a usual core, evenly spread, such as 10m..15m.",
        ),
        click.option(
            "--hosts", type=_Hosts(), required=True, metavar="KIND:N,...",
            help="Kinds of hosts with their numbers. Kinds: campus, collaborative, community,"
            " volunteers.",
        ),
        click.option(
            "--seeds", type=click.IntRange(1, _MOST_SEEDS), default=seeds, show_default=True,
            metavar="N", help="Number of simulations of each policy, each with other chances.",
        ),
        click.option(
            "--new-hosts", is_flag=True,
            help="Let the server know nothing of the hosts; else it has had 100 results of each.",
        ),
    )  # fmt: skip

    def add(command: Callable[..., R]) -> Callable[..., R]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.command()
@click.argument("file", type=FILE, metavar="FILE")
@world_options(seeds=3)
@as_json
def simulate(file: Path, as_json: bool, **asked: Any) -> None:
    """Simulate a BOT under the policy of FILE, without a server.

    The server's own scheduling runs on simulated hosts.  Prints the median and the 80 % range of
    the time from submission to the last result, of the tail, of replicas and of discarded work.

    e.g.  gridbot policy simulate tail.ad --jobs 3000 --time 10m..15m --hosts collaborative:200
    """
    found = _estimate([file], asked)
    print_json(found) if as_json else click.echo(simulation_page(found))


@click.command()
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="A.ad B.ad...")
@world_options(seeds=8)
@as_json
def compare(files: Sequence[Path], as_json: bool, **asked: Any) -> None:
    """Simulate policies, and say which differences are real.

    A BOT meets the same hosts, jobs and failures under each.  Each policy is compared with the
    first, seed by seed.  A difference is shown with its interval if it is real, else as unclear.

    e.g.  gridbot policy compare now.ad new.ad --jobs 3000 --time 10m..15m --hosts campus:200
    """
    if not 2 <= len(files) <= _MOST_POLICIES:
        raise click.UsageError(f"between 2 and {_MOST_POLICIES} policies can be compared")
    if twice := [str(file) for file in files if files.count(file) > 1]:
        raise click.UsageError(f"{twice[0]} is given twice")
    found = _estimate(files, asked)
    print_json(found) if as_json else click.echo(comparison_page(found))


@click.command()
@click.argument("file", type=FILE, metavar="[FILE]", required=False)
@world_options(seeds=8)
@click.option(
    "--prefer",
    type=click.Choice(["time", "cost", "balance"]),
    default="balance",
    show_default=True,
    help="The least makespan, the least CPU time, or the knee between.",
)
@as_json
def suggest(file: Path | None, prefer: str, as_json: bool, **asked: Any) -> None:
    """Suggest a policy for a BOT, found by simulations.

    At most 20 policies are tried: what FILE says, or the default policy, with other choices for
    replicas, deadline and hosts in the tail phase.  Prints the chosen one as a policy file.

    e.g.  gridbot policy suggest --jobs 3000 --time 10m..15m --hosts campus:200 > tail.ad
    """
    present = read_policy(file) if file is not None else ""
    found = _asked("suggest", asked, present, prefer)
    print_json(found) if as_json else click.echo(suggestion_page(found))


def _estimate(files: Sequence[Path], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Have the simulator estimate what the policies of files would do."""
    return _asked("estimate", asked, {str(file): read_policy(file) for file in files})


def _asked(what: str, asked: Mapping[str, Any], *about: object) -> dict[str, Any]:
    """Ask the simulator, with the options of `world_options`."""
    wanted = {
        "jobs": asked["jobs"],
        "seconds": asked["time"],
        "hosts": asked["hosts"],
        "seeds": asked["seeds"],
        "are_known": not asked["new_hosts"],
    }
    try:
        return _simulator(what)(wanted, *about, say)
    except ValueError as error:
        raise BadInput(str(error)) from None


def _simulator(what: str) -> Simulator:
    (point,) = entry_points(group="gridbot.simulator", name=what)
    try:
        simulator: Simulator = point.load()
    except ImportError as error:
        if (error.name or "").startswith("gridbot"):
            raise
        raise BadInput(
            "the simulator needs the server's packages; install them with:"
            f" {install_command('server')}"
        ) from None
    return simulator
