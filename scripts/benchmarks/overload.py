"""More requests than the server can answer: what it does then, beside what it does at its best.

First the plateau, as many requests per second as a closed loop gets; then arrivals at a multiple of
that rate, answered or not, from processes of their own; then the plateau again.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

import click

from .harness.command import MILLION, jobs_option, measurement, quick_option
from .harness.host_requests import JOBS_PER_RPC
from .harness.load import open_loop
from .harness.load.closed_loop import percentile
from .harness.load.generator import Plan
from .harness.load.open_loop import Flood
from .harness.stages import Server, server
from .harness.usage import Usage
from .harness.watch import Sight, Watch
from .harness.windows import LOAD, OF_A_REQUEST, Generator, Row, Window, generator

CONCURRENCY = 64
PLATEAU_HOSTS = 2000  # that take turns at the connections
_WEIGH_SECONDS = 1.0  # reading the memory of all processes costs some
_PLATEAU_REQUESTS = 1_000_000  # more than time allows


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    seconds: float  # of the flood
    plateau_seconds: float
    times: float  # the plateau
    hosts: int  # of the flood
    processes: int  # that send it
    sockets: int  # open at once in all of them
    keeps: bool  # connections, as a proxy does


@dataclass(frozen=True, slots=True)
class Came:
    """What came of a flood, all its processes together."""

    parts: Sequence[Mapping[str, Any]]
    used: Usage
    sights: Sequence[Sight]
    memory_growth_mb: float
    normal_after_seconds: float

    def total(self, *names: str) -> float:
        """The sum of a figure over all processes."""
        total = 0.0
        for part in self.parts:
            found: Any = part
            for name in names:
                found = found[name]
            total += found
        return total

    @property
    def seconds(self) -> float:
        """How long it took, the last answers included."""
        return max(float(part["seconds"]) for part in self.parts)


@measurement()
@click.option("--seconds", type=click.FloatRange(1, 600), default=60.0, show_default=True,
              help="Of the flood.")  # fmt: skip
@click.option("--plateau-seconds", type=click.FloatRange(1, 60), default=5.0, show_default=True,
              help="Of the plateau, before and after it.")  # fmt: skip
@click.option("--times", type=click.FloatRange(0.1, 100), default=10.0, show_default=True,
              help="Arrivals, as a multiple of the plateau.")  # fmt: skip
@click.option("--hosts", type=click.IntRange(100), default=10_000, show_default=True)
@click.option("--processes", type=click.IntRange(1, 16), default=2, show_default=True,
              help="That send the flood.")  # fmt: skip
@click.option("--sockets", type=click.IntRange(16, 16_000), default=4000, show_default=True,
              help="Open at once, in all of them.")  # fmt: skip
@click.option("--keep", "keeps", is_flag=True, help="Keep connections, as a proxy in front does.")
@jobs_option(2 * MILLION)
@quick_option()
def overload(jobs: int, quick: bool, **chosen: Any) -> list[Row]:
    """Arrivals at ten times what the server can answer: what it does then, and afterwards."""
    size = Size(**chosen)
    if quick:
        size, jobs = replace(size, seconds=3.0, plateau_seconds=1.0, hosts=2000), 100_000
    hosts = PLATEAU_HOSTS + size.hosts
    with server(jobs, least=jobs // 2, hosts=hosts) as ours, ExitStack() as stack:
        plan = Plan(ours.port, CONCURRENCY, JOBS_PER_RPC, size.plateau_seconds, _PLATEAU_REQUESTS,
                    PLATEAU_HOSTS)  # fmt: skip
        before = ours.measure(plan)
        rate = size.times * before.requests / before.seconds
        senders = [
            stack.enter_context(generator(open_loop.__name__)) for _ in range(size.processes)
        ]
        came = _flood(ours, senders, _floods(size, ours.port, rate))
        ours.calm_down()
        after = ours.measure(plan)
    return [_row(size, before, came, after)]


def _floods(size: Size, port: int, rate: float) -> list[Flood]:
    """The shares of the processes."""
    count, hosts = size.processes, size.hosts // size.processes
    firsts = range(PLATEAU_HOSTS, PLATEAU_HOSTS + count * hosts, hosts)
    return [
        Flood(port, rate / count, size.seconds, size.sockets // count, JOBS_PER_RPC,
              (first, first + hosts), size.keeps)
        for first in firsts
    ]  # fmt: skip


def _flood(ours: Server, senders: Sequence[Generator], floods: Sequence[Flood]) -> Came:
    for sender, flood in zip(senders, floods, strict=True):
        sender.tell(json.dumps(asdict(flood)))
    for sender in senders:
        sender.hear()
    ours.calm_down()
    with Watch(ours.roots, ours.port, _WEIGH_SECONDS) as watch:
        before = ours.meter.read()
        for sender in senders:
            sender.tell("go")
        parts = [sender.hear() for sender in senders]
        used, ended = ours.meter.read().since(before), time.monotonic()
        normal = watch.wait_until_normal()
    sights = [sight for sight in watch.sights if sight.at < ended]
    return Came(parts, used, sights, watch.most_growth_mb, normal)


def _row(size: Size, before: Window, came: Came, after: Window) -> Row:
    plateau, later = before.row(), after.row()
    useful = came.total("reporting", "served") + came.total("asking", "served")
    refused = came.total("reporting", "refused") + came.total("asking", "refused")
    arrivals = came.total("sent") / size.seconds
    cpu = {**came.used.groups, LOAD: came.total("cpu_seconds")}
    per_rpc = {name: 1e6 * seconds / max(1.0, useful) for name, seconds in cpu.items()}
    cost = sum(per_rpc[name] for name in OF_A_REQUEST)
    return {
        "flood": f"{size.times:g} times, {size.seconds:g} s, {_kind(size)}",
        "plateau_rpc_per_s": plateau["rpc_per_s"],
        "plateau_us_per_rpc": plateau["server_us_per_rpc"],
        "plateau_p99_ms": plateau["p99_ms"],
        "arrivals_per_s": arrivals,
        "times_reached": arrivals / plateau["rpc_per_s"],
        "useful_per_s": useful / came.seconds,
        "us_per_useful_rpc": cost,
        "cost_to_plateau": cost / plateau["server_us_per_rpc"],
        "cpu_us_per_useful_rpc": per_rpc,
        "served_with_reports_share": _share(came, "reporting"),
        "served_without_share": _share(came, "asking"),
        "served_p99_ms": max(part["served_p99_ms"] for part in came.parts),
        "refused": refused,
        "refused_p99_ms": max(part["refused_p99_ms"] for part in came.parts),
        "refused_without_retry": came.total("reporting", "silent") + came.total("asking", "silent"),
        "retry_seconds": _retry(came),
        "failed": came.total("reporting", "failed") + came.total("asking", "failed"),
        "health": _health(came.sights),
        "memory_growth_mb": came.memory_growth_mb,
        "normal_after_seconds": came.normal_after_seconds,
        "load_share": cpu[LOAD] / sum(cpu.values()),
        "others_share": max(0.0, 1 - sum(cpu.values()) / came.used.busy),
        "after_to_before": {
            name: later[name] / plateau[name] for name in ("rpc_per_s", "server_us_per_rpc")
        },
    }


def _kind(size: Size) -> str:
    return "kept connections" if size.keeps else "a connection each"


def _share(came: Came, kind: str) -> float:
    served = came.total(kind, "served")
    sent = served + came.total(kind, "refused") + came.total(kind, "failed")
    return served / max(1.0, sent)


def _retry(came: Came) -> Row:
    """How long refused clients were to wait."""
    said: Counter[int] = Counter()
    for part in came.parts:
        said.update({int(seconds): times for seconds, times in part["retry"].items()})
    if not said:
        return {}
    median = percentile(sorted(said.elements()), 0.5)
    return {"least": min(said), "median": median, "most": max(said)}


def _health(sights: Sequence[Sight]) -> Row:
    delays = [1000 * sight.seconds for sight in sights]
    return {
        "looks": len(sights),
        "p50_ms": percentile(delays, 0.5),
        "p99_ms": percentile(delays, 0.99),
        "most_ms": max(delays),
        "failed": sum(not sight.is_well for sight in sights),
    }
