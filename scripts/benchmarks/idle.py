"""Clients without work, which ask again when their last reply says so: what they cost a server."""

from __future__ import annotations

import http.client
import json
import random
import selectors
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import click

from gridbot_client.backoff import poll_seconds
from gridbot_client.protocol.messages import WorkRequest, decode_reply, encode_request

from .harness.command import measurement, quick_option, several
from .harness.installation import Installation, installation
from .harness.load.clients import Client
from .harness.load.native_hosts import HOST
from .harness.usage import cpu_seconds
from .harness.windows import Row

COLUMNS = {
    "hosts": ["hosts"],
    "requests/s": ["requests_per_s"],
    "CPU ms/s": ["cpu_ms_per_s"],
    "web": ["cpu_ms_per_s_of", "gunicorn"],
    "database": ["cpu_ms_per_s_of", "postgresql"],
    "feeder": ["cpu_ms_per_s_of", "feeder"],
    "daemons": ["cpu_ms_per_s_of", "daemons"],
}
_WAIT_SECONDS = 50.0  # that a client lets the server keep a request
_QUICK_SECONDS = 1.0


@measurement(COLUMNS)
@several("--hosts", (100, 1000), "Clients without work")
@click.option("--seconds", type=click.FloatRange(1.0), default=60.0, show_default=True,
              help="Of each measurement, after as long without one.")  # fmt: skip
@quick_option()
def idle(hosts: tuple[int, ...], seconds: float, quick: bool) -> list[Row]:
    """Clients without work: their requests, and the server's CPU time, per second."""
    seconds = _QUICK_SECONDS if quick else seconds
    return [_row(count, seconds) for count in hosts]


def _row(hosts: int, seconds: float) -> Row:
    with installation() as place, _idle_hosts(place, hosts) as crowd:
        crowd.ask_for(seconds)
        before = cpu_seconds(place.servers())
        began, asked = time.monotonic(), crowd.asked
        crowd.ask_for(seconds)
        lasted = time.monotonic() - began
        used = {
            name: 1000 * (now - before[name]) / lasted
            for name, now in cpu_seconds(place.servers()).items()
        }
    return {
        "hosts": hosts,
        "requests_per_s": (crowd.asked - asked) / lasted,
        "cpu_ms_per_s": sum(used.values()),
        "cpu_ms_per_s_of": used,
    }


@dataclass(eq=False, slots=True)
class _IdleHost:
    """One client; it has a request at the server, or waits until it may ask again."""

    wire: http.client.HTTPConnection
    token: str
    seqno: int = 0

    def ask(self) -> None:
        """Send a request, over a new connection if the server has closed the last one."""
        self.seqno += 1
        request = WorkRequest(uuid.uuid4().hex, self.seqno, HOST, 1, wait=_WAIT_SECONDS)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        self.wire.request("POST", "/rpc", encode_request(request), headers)

    def hear(self) -> float:
        """Read the reply; return when it says to ask again, in seconds."""
        answer = self.wire.getresponse()
        body = answer.read()
        if answer.status != http.client.OK:
            return float(answer.headers.get("Retry-After", 1.0))
        return decode_reply(body).next_request_seconds


class _Crowd:
    """Clients in one loop, which begin within a second."""

    def __init__(self, hosts: list[_IdleHost]) -> None:
        self.asked = 0
        self._draw = random.Random(1)
        now = time.monotonic()
        self._due = [
            (now + self._draw.uniform(0, 1), number, host) for number, host in enumerate(hosts)
        ]
        heapify(self._due)
        self._number = len(hosts)
        self._answers = selectors.DefaultSelector()

    def ask_for(self, seconds: float) -> None:
        """Ask, wait and ask again for so long."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            while self._due and self._due[0][0] <= now:
                self._ask(heappop(self._due)[2])
            next_at = min(until, self._due[0][0]) if self._due else until
            for key, _ in self._answers.select(max(0.0, next_at - time.monotonic())):
                self._answers.unregister(key.fileobj)
                self._plan(key.data)

    def _ask(self, host: _IdleHost) -> None:
        host.ask()
        self.asked += 1
        self._answers.register(host.wire.sock, selectors.EVENT_READ, host)

    def _plan(self, host: _IdleHost) -> None:
        self._number += 1
        at = time.monotonic() + poll_seconds(host.hear(), self._draw.random())
        heappush(self._due, (at, self._number, host))


@contextmanager
def _idle_hosts(place: Installation, count: int) -> Iterator[_Crowd]:
    """So many hosts of a volunteer, for whom there is no work."""
    place.gridbot("user", "add", "volunteer1")
    made = place.gridbot("token", "create", "volunteer1", "--scope", "join", "--json")
    key, hosts = json.loads(made)["token"], list[_IdleHost]()
    for number in range(count):
        with Client(place.url, key, f"idle-{number}") as client:
            wire = http.client.HTTPConnection(place.url.removeprefix("http://"))
            hosts.append(_IdleHost(wire, client.token))
    try:
        yield _Crowd(hosts)
    finally:
        for host in hosts:
            host.wire.close()
