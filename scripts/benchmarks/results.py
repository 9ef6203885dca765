"""A BOT executed for real by clients that take no time, then all its results fetched."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from .installation import BenchFailed, Installation, installation
from .measures import MemoryWatch, cpu_seconds

_LAG_SECONDS = 60.0


def run(
    jobs: int, clients: int, jobs_per_request: int, limit_seconds: float
) -> list[dict[str, Any]]:
    """Measure both on a server of their own."""
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


def _execute(place: Installation, bot: int, load: dict[str, float]) -> dict[str, Any]:
    servers = place.servers()
    used = cpu_seconds(servers)
    options = [part for name, value in load.items() for part in (f"--{name}", str(value))]
    found = place.part("load", *_whom(place), *options, "--reported", str(_reported(place)))
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


def _fetch(place: Installation, bot: int, jobs: int) -> dict[str, Any]:
    servers = place.servers()
    fetched = place.folder / "fetched"
    with MemoryWatch(servers) as memory:
        found = place.part("fetch", *_whom(place), "--bot", str(bot), "--to", str(fetched))
    same = sorted(fetched.open("rb")) == sorted(_reported(place).open("rb"))
    return {
        "phase": "fetch",
        **found,
        "jobs_per_s": found["jobs"] / found["seconds"],
        "server_growth_mb": memory.peak.pss - memory.before.pss,
        "all_as_reported": same and found["jobs"] == jobs,
    }


def _whom(place: Installation) -> tuple[str, ...]:
    return "--url", place.url, "--key-file", str(place.key_path)


def _reported(place: Installation) -> Path:
    return place.folder / "reported"
