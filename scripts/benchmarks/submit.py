"""What a large BOT costs: to submit, in the server's memory, and for hosts that ask meanwhile."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from gridbot_client.protocol.messages import WorkReply

from .harness.command import MILLION, measurement
from .harness.installation import BenchFailed, Installation, installation
from .harness.load.clients import Client, report
from .harness.usage import cpu_seconds, memory_of, wait_for_calm
from .harness.watch import Watch
from .harness.windows import Row

_WARM_UP = 10  # requests that are not counted
_FEED_SECONDS = 30.0


@measurement()
@click.option("--jobs", type=click.IntRange(1), default=MILLION, help="Jobs of the range.")
@click.option("--items", type=click.IntRange(1), default=MILLION, help="Lines of the CSV table.")
@click.option("--requests", type=click.IntRange(3), default=200, help="Host requests to time.")
def submit(jobs: int, items: int, requests: int) -> list[Row]:
    """A large BOT: seconds to submit, memory, a host's request before and after."""
    rows = []
    for source, size in (("range", jobs), ("CSV", items)):
        with installation() as place:
            rows.append({"jobs from": source, **_measure(place, source, size, requests)})
    return rows


def _measure(place: Installation, source: str, jobs: int, requests: int) -> Row:
    few = place.submit("--name", "few", *_range(2 * (_WARM_UP + requests)))
    servers = place.servers()
    with Client(place.url, place.key_path.read_text().strip(), "probe") as client:
        before = _request_cost(client, servers, requests)
        place.gridbot("bot", "cancel", str(few))
        options = _range(jobs) if source == "range" else _table(place.folder / "jobs.csv", jobs)
        with Watch(servers) as watch:
            began = time.monotonic()
            place.submit("--name", "many", *options)
            seconds = time.monotonic() - began
            after = _request_cost(client, servers, requests)
    return {
        "jobs": jobs,
        "seconds": seconds,
        "jobs_per_s": jobs / seconds,
        "memory_mb": _memory(watch, servers),
        **{
            name: {"before": cost, "after": after[name], "ratio": after[name] / cost}
            for name, cost in before.items()
        },
    }


def _memory(watch: Watch, servers: Mapping[str, int]) -> dict[str, float]:
    before, peak, after = watch.memory[0], watch.most, memory_of(servers)
    return {
        "before": before.pss,
        "peak": peak.pss,
        "after": after.pss,
        "growth of programs": peak.own - before.own,
        "growth of shared buffers": peak.shared - before.shared,
        "rss before": before.rss,
        "rss peak": peak.rss,
    }


def _range(jobs: int) -> Sequence[str]:
    return ["--range", f"0:{jobs}", "--", "true", "{i}"]


def _table(path: Path, jobs: int) -> Sequence[str]:
    with path.open("w") as file:
        file.write("x,name\n")
        file.writelines(f"{number / 1000},item-{number}\n" for number in range(jobs))
    return ["--items", str(path), "--", "true", "{x}", "{name}"]


def _request_cost(client: Client, servers: Mapping[str, int], requests: int) -> dict[str, float]:
    """The cost of a request that reports one job and asks for one: median time, server's CPU."""
    client.close()  # it may have been silent for longer than the server keeps a connection
    wait_for_calm(servers)
    reply = _first_job(client)
    times, used = [], {}
    for number in range(_WARM_UP + requests):
        if number == _WARM_UP:
            used = cpu_seconds(servers)
        reports = [report(assignment) for assignment in reply.assignments]
        began = time.perf_counter()
        reply = client.exchange(1, reports)
        times.append(time.perf_counter() - began)
    spent = sum(cpu_seconds(servers).values()) - sum(used.values())
    client.exchange(0, [report(assignment) for assignment in reply.assignments])
    return {
        "request_ms": 1000 * statistics.median(times[_WARM_UP:]),
        "request_cpu_ms": 1000 * spent / requests,
    }


def _first_job(client: Client) -> WorkReply:
    """Wait until the feeder has brought the BOT's first jobs."""
    gives_up_at = time.monotonic() + _FEED_SECONDS
    while not (reply := client.exchange(1, ())).assignments:
        if time.monotonic() > gives_up_at:
            raise BenchFailed(f"no job came within {_FEED_SECONDS:g} s: {reply.message}")
        time.sleep(0.1)
    return reply
