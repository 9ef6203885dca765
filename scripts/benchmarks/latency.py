"""A chain of one-job BOTs, or of jobs appended to one, while other hosts are idle.

Each is sent when the one before has ended.
"""

from __future__ import annotations

import http.client
import json
import statistics
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import click

from gridbot import Session
from gridbot_client.protocol.messages import WorkRequest, encode_request

from .harness.command import measurement, quick_option, several
from .harness.installation import Installation, installation
from .harness.load.clients import Client
from .harness.load.native_hosts import HOST
from .harness.usage import cpu_seconds
from .harness.windows import Row

COLUMNS = {
    "idle hosts": ["idle_hosts"],
    "BOTs": ["bots"],
    "median ms": ["median_ms"],
    "p99 ms": ["p99_ms"],
    "idle CPU ms/s": ["idle_cpu_ms_per_s"],
    "server CPU ms": ["server_cpu_ms"],
}
_IDLE_SECONDS = 5.0
_PATIENCE_SECONDS = 60.0


@measurement(COLUMNS)
@click.option("--bots", type=click.IntRange(1), default=50, show_default=True, help="In the chain.")
@several("--idle", (1, 100), "Other hosts, whose requests wait")
@click.option("--appended", is_flag=True, help="Jobs appended to one growing BOT instead.")
@quick_option()
def latency(bots: int, idle: tuple[int, ...], appended: bool, quick: bool) -> list[Row]:
    """A chain of one-job BOTs on one client: time from submission to end, of each.

    The server's CPU time is that of all its processes, of one BOT or appended job.
    """
    with installation() as place, place.session() as session:
        place.start_client("worker", "--cpus", "2")
        session.submit("true").wait(timeout=_PATIENCE_SECONDS)
        place.gridbot("user", "add", "volunteer1")
        count, chain = 3 if quick else bots, _appended if appended else _submitted
        return [_row(place, chain(session, count), count, hosts) for hosts in idle]


def _row(place: Installation, chain: Iterator[float], bots: int, hosts: int) -> Row:
    with _idle_hosts(place, hosts):
        before = cpu_seconds(place.servers())
        time.sleep(_IDLE_SECONDS)
        used = sum(cpu_seconds(place.servers()).values()) - sum(before.values())
        before = cpu_seconds(place.servers())
        seconds = list(chain)
        worked = sum(cpu_seconds(place.servers()).values()) - sum(before.values())
    return {
        "idle_hosts": hosts,
        "bots": bots,
        "median_ms": 1000 * statistics.median(seconds),
        "p99_ms": 1000 * sorted(seconds)[int(0.99 * len(seconds))],
        "idle_cpu_ms_per_s": 1000 * used / _IDLE_SECONDS,
        "server_cpu_ms": 1000 * worked / bots,
    }


def _submitted(session: Session, count: int) -> Iterator[float]:
    for _ in range(count):
        began = time.perf_counter()
        session.submit("true").wait(timeout=_PATIENCE_SECONDS)
        yield time.perf_counter() - began


def _appended(session: Session, count: int) -> Iterator[float]:
    bot = session.submit("true", growing=True)
    results = bot.results(follow=True)
    for _ in range(count):
        began = time.perf_counter()
        bot.append([{}])
        next(results)
        yield time.perf_counter() - began
    bot.close()


@contextmanager
def _idle_hosts(place: Installation, count: int) -> Iterator[None]:
    """Hosts of a volunteer, for whom the chain's BOTs are not signed; each has asked once."""
    made = place.gridbot("token", "create", "volunteer1", "--scope", "join", "--json")
    key = json.loads(made)["token"]
    with ExitStack() as stack:
        for number in range(count):
            with Client(place.url, key, f"idle-{number}") as client:
                token = client.token
            wire = http.client.HTTPConnection(place.url.removeprefix("http://"))
            stack.callback(wire.close)
            request = WorkRequest(uuid.uuid4().hex, 1, HOST, 1, wait=50.0)
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            wire.request("POST", "/rpc", encode_request(request), headers)
        yield
