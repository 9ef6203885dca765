"""Two commits beside each other: the CPU time of a host request in the servers of both.

Both servers run side by side and are measured in turn, so that whatever else the machine does meets
both; which of them comes first alternates from pair to pair. A process keeps the places in memory
that it was given at its start, which make it faster or slower by some percent; so both are started
anew after some pairs. The load generator is this
checkout's for both: only the server differs.  It speaks HTTP alone, in the server's own version of
the protocol, and jobs are submitted by the server's own command; so it meets servers with another
database schema.
"""

from __future__ import annotations

import io
import json
import math
import statistics
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click

from .harness.command import measurement
from .harness.host_requests import Cell, Size, celled
from .harness.installation import CHECKOUT, BenchFailed, Installation, installation
from .harness.load.clients import Client
from .harness.stages import Server, Stock
from .harness.windows import OF_A_REQUEST, Row, generator

COLUMNS = {
    "base": ["base"],
    "jobs": ["jobs_per_rpc"],
    "conc.": ["concurrency"],
    "pairs": ["pairs"],
    "base µs": ["base_us_per_rpc"],
    "new µs": ["new_us_per_rpc"],
    "change %": ["change_percent", "median"],
    "least": ["change_percent", "least"],
    "most": ["change_percent", "most"],
    "95 % from": ["change_percent", "from"],
    "to": ["change_percent", "to"],
    "higher in": ["pairs_higher"],
    "within": ["is_within"],
    "web %": ["part_change_percent", "gunicorn"],
    "database %": ["part_change_percent", "postgresql"],
    "feeder %": ["part_change_percent", "feeder"],
    "others": ["others_share"],
}

_COST = "server_us_per_rpc"
_CONFIDENCE = 0.95

Pair = tuple[Row, Row]  # of the base, of this checkout


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two servers, and the tokens of the hosts that speak to it."""

    server: Server
    tokens: Sequence[str]
    protocol: int

    def measure(self, size: Size, cell: Cell) -> Row:
        """Measure, then wait until the server has done what that left it to do."""
        usual = size.plan(self.server.port, *cell)
        plan = replace(usual, tokens=self.tokens, protocol=self.protocol)
        row = self.server.measure(plan).row()
        self.server.calm_down()
        return row


@measurement(COLUMNS)
@click.argument("base")
@click.argument("measurement", type=click.Choice(["dispatch"]), default="dispatch")
@click.option("--pairs", type=click.IntRange(1), default=12, show_default=True)
@click.option("--pairs-per-start", type=click.IntRange(1), default=3, show_default=True,
              help="Pairs after which both servers are started anew.")  # fmt: skip
@celled(concurrency=(64,))
@click.option("--requests", type=click.IntRange(1), default=5000, show_default=True,
              help="In each measurement.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(0.1), default=6.0, show_default=True,
              help="Of each measurement, at most.")  # fmt: skip
@click.option("--within", "limit", type=float, default=2.0, show_default=True,
              help="Percent by which a request may cost more.")  # fmt: skip
def compare(
    base: str, measurement: str, pairs: int, pairs_per_start: int,  # noqa: ARG001
    cells: Sequence[Cell], requests: int, seconds: float, limit: float,
) -> list[Row]:  # fmt: skip
    """CPU time of a host request beside that of the commit BASE, in interleaved pairs."""
    python = base_python(CHECKOUT, base)
    for line in other_packages(python):
        click.echo(f"another version: {line}", err=True)
    size = Size(pairs, seconds, requests)
    found = measure(python, size, cells, lambda line: click.echo(line, err=True), pairs_per_start)
    return [{"base": base, **row(cell, of_cell, limit)} for cell, of_cell in found.items()]


def measure(
    base: str,
    size: Size,
    cells: Sequence[Cell],
    tell: Callable[[str], None],
    pairs_per_start: int = 3,
) -> dict[Cell, list[Pair]]:
    """Measure `size.rounds` pairs of each cell.

    `base` is the Python of an environment in which the server to compare with is installed; `tell`
    is given a line after each round.
    """
    pairs: dict[Cell, list[Pair]] = {cell: [] for cell in cells}
    for begin in range(0, size.rounds, pairs_per_start):
        rounds = range(begin, min(begin + pairs_per_start, size.rounds))
        _measure_rounds(base, size, rounds, pairs, tell)
    return pairs


def _measure_rounds(
    base: str,
    size: Size,
    rounds: range,
    pairs: dict[Cell, list[Pair]],
    tell: Callable[[str], None],
) -> None:
    """Measure some rounds on two servers that live as long as these."""
    least = max(size.jobs(jobs_per_rpc) for jobs_per_rpc, _ in pairs)
    jobs = least + len(rounds) * sum(size.jobs(jobs_per_rpc) for jobs_per_rpc, _ in pairs)
    hosts = max(concurrency for _, concurrency in pairs)
    with _side(base, jobs, least, hosts) as old, _side(sys.executable, jobs, least, hosts) as new:
        for number in rounds:
            for cell, found in pairs.items():
                found.append(_measured(old, new, size, cell, is_old_first=number % 2 == 0))
            tell(_told(number + 1, pairs))


def _measured(old: Side, new: Side, size: Size, cell: Cell, is_old_first: bool) -> Pair:
    if is_old_first:
        before = old.measure(size, cell)
        return before, new.measure(size, cell)
    after = new.measure(size, cell)
    return old.measure(size, cell), after


@contextmanager
def _side(python: str, jobs: int, least: int, hosts: int) -> Iterator[Side]:
    with (
        installation(python=python) as place,
        generator() as load,
        place.session() as session,
    ):
        tokens, protocol = join_hosts(place, hosts)
        stock = Stock(place, session, jobs, least)
        yield Side(Server(place, load, stock.fill), tokens, protocol)


def join_hosts(place: Installation, hosts: int) -> tuple[list[str], int]:
    """Let hosts join a server of any commit; return their tokens and its protocol's version."""
    key = place.key_path.read_text().strip()
    tokens, protocol = [], 1
    for number in range(hosts):
        with Client(place.url, key, f"load-{number}") as client:
            tokens.append(client.token)
            protocol = client.protocol
    return tokens, protocol


# ------------------------------------------------------------------------------- the figures


def row(cell: Cell, pairs: Sequence[Pair], limit: float) -> Row:
    """What the pairs of a cell say; `limit` is in percent."""
    base, new = zip(*pairs, strict=True)
    changes = [_change(pair) for pair in pairs]
    interval = median_interval(changes)
    return {
        "jobs_per_rpc": cell[0],
        "concurrency": cell[1],
        "pairs": len(pairs),
        "base_us_per_rpc": statistics.median(row[_COST] for row in base),
        "new_us_per_rpc": statistics.median(row[_COST] for row in new),
        "change_percent": {
            "median": statistics.median(changes),
            "least": min(changes),
            "most": max(changes),
            **(dict(zip(("from", "to"), interval, strict=True)) if interval else {}),
        },
        "pairs_higher": sum(change > 0 for change in changes),
        "is_within": is_within(interval, limit),
        "part_change_percent": {name: _part_change(pairs, name) for name in OF_A_REQUEST},
        "others_share": statistics.median(row["others_share"] for row in (*base, *new)),
        "ratios": [new[_COST] / base[_COST] for base, new in pairs],
    }


def _change(pair: Pair) -> float:
    base, new = pair
    change: float = 100 * (new[_COST] / base[_COST] - 1)
    return change


def _part_change(pairs: Sequence[Pair], process: str) -> float | None:
    """Of one process, in percent; None where it took less than the clock can tell."""
    parts: list[list[float]] = [[row["cpu_us_per_rpc"][process] for row in pair] for pair in pairs]
    changes = [100 * (new / base - 1) for base, new in parts if base]
    return statistics.median(changes) if changes else None


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The least and the greatest value that the true median may have with a confidence of 95 %.

    The interval of the sign test, which assumes nothing of the values' distribution: it lies
    between two of them. Fewer than six give none.
    """
    ordered, count = sorted(values), len(values)
    below, outside = 0, 0.0  # how many values lie below the interval; the chance of a side of it
    while (outside := outside + math.comb(count, below) / 2**count) <= (1 - _CONFIDENCE) / 2:
        below += 1
    return (ordered[below - 1], ordered[count - below]) if below else None


def is_within(interval: tuple[float, float] | None, limit: float) -> str:
    """Whether changes (%) with this interval are at most `limit`: `yes`, `no` or `undecided`."""
    if interval is None or interval[0] <= limit < interval[1]:
        return "undecided"
    return "yes" if interval[1] <= limit else "no"


def _told(number: int, pairs: dict[Cell, list[Pair]]) -> str:
    changes = (
        f"{jobs}/{wide}: {_change(found[-1]):+.1f} %" for (jobs, wide), found in pairs.items()
    )
    return f"pair {number}, jobs/concurrency: change: {', '.join(changes)}"


# --------------------------------------------------------------------------- the other commit


def base_python(checkout: Path, name: str) -> str:
    """Return the Python of an environment with the commit of this name; it is made once and kept.

    It lies in `demo-out/compare`, made by that commit's own `scripts/environment.py`. Raises
    BenchFailed for a name that git does not know and an environment that cannot be made.
    """
    found = _git(checkout, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if found is None:
        raise BenchFailed(f"{name} names no commit")
    commit = found.decode().strip()
    folder = checkout / "demo-out" / "compare" / commit
    if not folder.exists():
        _extract(checkout, commit, folder)
    made = subprocess.run(
        [sys.executable, "scripts/environment.py", "demo"], cwd=folder, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    if made.returncode != 0:
        raise BenchFailed(f"{name}: its environment could not be made in {folder}")
    return made.stdout.strip()


def _extract(checkout: Path, commit: str, folder: Path) -> None:
    archive = _git(checkout, "archive", "--format=tar", commit)
    assert archive is not None, "a commit has files"
    part = folder.with_suffix(".part")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(part, filter="data")
    part.rename(folder)


def _git(checkout: Path, *arguments: str) -> bytes | None:
    ended = subprocess.run(["git", "-C", str(checkout), *arguments], capture_output=True)
    return ended.stdout if ended.returncode == 0 else None


def other_packages(python: str) -> list[str]:
    """Packages that both environments have in another version: they differ beside the commits."""
    base, ours = _packages(python), _packages(sys.executable)
    return [
        f"{name} {base[name]} / {version}"
        for name, version in ours.items()
        if name in base and base[name] != version
    ]


def _packages(python: str) -> dict[str, str]:
    command = [python, "-m", "pip", "list", "--format=json", "--exclude-editable"]
    listed = subprocess.run(command, capture_output=True, check=True)
    return {item["name"]: item["version"] for item in json.loads(listed.stdout)}
