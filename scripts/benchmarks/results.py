"""A BOT executed for real by clients that take no time, then all its results fetched."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click

from .harness.command import measurement
from .harness.installation import CHECKOUT, BenchFailed, Installation, installation
from .harness.load import clients as load_clients
from .harness.load import fetch
from .harness.usage import cpu_seconds
from .harness.watch import Watch
from .harness.windows import Row

_LAG_SECONDS = 60.0


@measurement()
@click.option("--jobs", type=click.IntRange(1), default=100_000)
@click.option("--clients", type=click.IntRange(1, 64), default=16)
@click.option("--jobs-per-request", type=click.IntRange(1, 200), default=20)
@click.option("--limit-seconds", type=click.FloatRange(1), default=300.0)
def results(jobs: int, clients: int, jobs_per_request: int, limit_seconds: float) -> list[Row]:
    """A BOT executed by fast clients, then its results as one stream, all compared."""
    with installation() as place:
        policy = place.folder / "bench.ad"
        policy.write_text(f"Concurrency = {jobs_per_request};\n")
        options = ("--policy", str(policy), "--range", f"0:{jobs}", "--", "echo", "{i}")
        bot = place.submit("--name", "bench", *options)
        load = {
            "clients": clients,
            "jobs": jobs,
            "jobs-per-request": jobs_per_request,
            "limit-seconds": limit_seconds,
        }
        return [_execute(place, bot, load), _fetch(place, bot, jobs)]


def _execute(place: Installation, bot: int, load: dict[str, float]) -> Row:
    servers = place.servers()
    used = cpu_seconds(servers)
    options = [part for name, value in load.items() for part in (f"--{name}", str(value))]
    program = load_clients.__name__
    found = _figures_of(place, program, *options, "--reported", str(_reported(place)))
    reported_at = time.monotonic()
    _wait_for_end(place, bot)
    spent = {name: now - used[name] for name, now in cpu_seconds(servers).items()}
    return {
        "phase": "execute",
        **{name.replace("-", "_"): value for name, value in load.items()},
        **found,
        "jobs_per_s": found["jobs"] / found["seconds"],
        "rpc_per_s": found["requests"] / found["seconds"],
        "lag_seconds": time.monotonic() - reported_at,  # from the last report to the BOT's end
        "load_cpu_share": found["cpu_seconds"] / found["seconds"],
        "cpu_us_per_rpc": {
            name: 1e6 * seconds / found["requests"] for name, seconds in spent.items()
        },
    }


def _wait_for_end(place: Installation, bot: int) -> None:
    """The transitioner may be behind what was reported."""
    with place.session() as session:
        try:
            session.bot(bot).wait(_LAG_SECONDS)
        except TimeoutError as error:
            raise BenchFailed(str(error)) from None


def _fetch(place: Installation, bot: int, jobs: int) -> Row:
    servers = place.servers()
    fetched = place.folder / "fetched"
    with Watch(servers) as watch:
        found = _figures_of(place, fetch.__name__, "--bot", str(bot), "--to", str(fetched))
    same = sorted(fetched.open("rb")) == sorted(_reported(place).open("rb"))
    return {
        "phase": "fetch",
        **found,
        "jobs_per_s": found["jobs"] / found["seconds"],
        "server_growth_mb": watch.most.pss - watch.memory[0].pss,
        "all_as_reported": same and found["jobs"] == jobs,
    }


def _figures_of(place: Installation, program: str, *options: str) -> dict[str, float]:
    """Run a program that speaks to the server, and prints figures, as a process of its own."""
    whom = ("--url", place.url, "--key-file", str(place.key_path))
    printed = place.run(sys.executable, "-m", program, *whom, *options, folder=CHECKOUT)
    figures: dict[str, float] = json.loads(printed)
    return figures


def _reported(place: Installation) -> Path:
    return place.folder / "reported"
