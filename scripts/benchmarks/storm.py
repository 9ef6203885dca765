"""What a server meets when it comes back after an outage: every client with its own back-off.

A simulation, with the clients' real back-off, the server's real admission, and in simulated time.
The server answers so many requests per second, lets a few wait, and refuses the others at once with
a time to come back.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

import click

from gridbot_client.backoff import REQUESTS, poll_seconds
from gridbot_server.overload.admission import Admission, QueueLimits

from .harness.command import measurement, quick_option, several
from .harness.load.closed_loop import percentile
from .harness.windows import Row

_QUICK_HOSTS = 5000


@dataclass(frozen=True, slots=True)
class Storm:
    """The crowd, the server, and how long that was away."""

    hosts: int
    outage_seconds: float
    per_second: float  # requests that the server answers
    poll_seconds: float  # between two requests of a host that all goes well for
    queue: int = QueueLimits().asking  # requests that may wait
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that is to be made again, so many seconds later."""

    retry_seconds: int


class _Server:
    """Answers one request after the other, since it came back at 0."""

    def __init__(self, storm: Storm, draw: random.Random) -> None:
        self._seconds = 1 / storm.per_second
        self._admission = Admission(0.0, QueueLimits(storm.queue, storm.queue), draw.random)
        self._answers: deque[float] = deque()  # when those are that wait
        self.arrivals: Counter[int] = Counter()  # by second
        self.refused = 0

    def answer(self, now: float) -> float | Refused:
        """When the request of now is answered, unless it is refused."""
        self.arrivals[int(now)] += 1
        while self._answers and self._answers[0] <= now:
            self._admission.end(self._answers.popleft())
        if not self._admission.admits(has_reports=False):
            self.refused += 1
            return Refused(self._admission.retry_seconds(now))
        self._admission.begin()
        self._answers.append(max(now, self._answers[-1] if self._answers else 0) + self._seconds)
        return self._answers[-1]


@measurement()
@click.option("--hosts", type=click.IntRange(1), default=100_000, show_default=True)
@several("--outage-seconds", (60, 600, 3600, 86_400), "How long the server was away")
@click.option("--per-second", type=click.FloatRange(1), default=1000.0, show_default=True,
              help="Requests that the server answers.")  # fmt: skip
@click.option("--poll-seconds", type=click.FloatRange(1), default=600.0, show_default=True,
              help="Between two requests of a host when all goes well.")  # fmt: skip
@quick_option("Fewer hosts.")
def storm(
    hosts: int, outage_seconds: Sequence[int], per_second: float, poll_seconds: float, quick: bool
) -> list[Row]:
    """Every host comes back after an outage: a simulation with the clients' real back-off."""
    hosts = min(hosts, _QUICK_HOSTS) if quick else hosts
    return [play(Storm(hosts, away, per_second, poll_seconds)) for away in outage_seconds]


def play(storm: Storm) -> Row:
    """Let the crowd come back, in simulated time."""
    draw = random.Random(storm.seed)
    server = _Server(storm, draw)
    served = sorted(_served(storm, server, draw))
    return {
        "outage_seconds": storm.outage_seconds,
        "hosts": storm.hosts,
        "server_per_s": storm.per_second,
        "usual_per_s": storm.hosts / storm.poll_seconds,
        "peak_per_s": max(server.arrivals.values()),
        "refused": server.refused,
        "half_served_seconds": percentile(served, 0.5),
        "drain_seconds": served[-1],
    }


def _served(storm: Storm, server: _Server, draw: random.Random) -> list[float]:
    """Let time pass until each host got an answer; return when (s since the server came back)."""
    first: dict[int, float] = {}
    agenda = [(*_first_try(storm, draw), host) for host in range(storm.hosts)]
    heapq.heapify(agenda)
    while len(first) < storm.hosts:
        now, failures, host = agenda[0]
        answer = server.answer(now)
        if isinstance(answer, Refused):
            failures += 1
            due = now + REQUESTS.seconds(failures, draw.random(), answer.retry_seconds)
            heapq.heapreplace(agenda, (due, failures, host))
        else:
            first.setdefault(host, answer)
            due = answer + poll_seconds(storm.poll_seconds, draw.random())
            heapq.heapreplace(agenda, (due, 0, host))
    return list(first.values())


def _first_try(storm: Storm, draw: random.Random) -> tuple[float, int]:
    """When a host first asks the server that is back, and how often it failed before."""
    at, failures = draw.random() * storm.poll_seconds - storm.outage_seconds, 0
    while at < 0:
        failures += 1
        at += REQUESTS.seconds(failures, draw.random())
    return at, failures
