"""What a server meets when it comes back after an outage: every client with its own back-off.

A simulation, with the clients' real back-off and in simulated time.  The server answers so many
requests per second, lets a few wait, and refuses the others at once with a time to come back.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gridbot_client.backoff import delay_seconds, poll_seconds
from gridbot_server.answers import RETRY_AFTER_SECONDS
from gridbot_server.dispatch.engine import QUEUE_REQUESTS

from .generator import percentile


@dataclass(frozen=True, slots=True)
class Storm:
    """The crowd, the server, and how long that was away."""

    hosts: int
    outage_seconds: float
    per_second: float  # requests that the server answers
    poll_seconds: float  # between two requests of a host that all goes well for
    queue: int = QUEUE_REQUESTS  # requests that may wait
    seed: int = 1


@dataclass(slots=True)
class _Server:
    """Answers one request after the other, since it came back at 0."""

    storm: Storm
    free_at: float = 0.0
    arrivals: Counter[int] = field(default_factory=Counter)  # by second
    refused: int = 0

    def answer(self, now: float) -> float | None:
        """When the request of now is answered; None when it is refused."""
        self.arrivals[int(now)] += 1
        self.free_at = max(self.free_at, now)
        if (self.free_at - now) * self.storm.per_second >= self.storm.queue:
            self.refused += 1
            return None
        self.free_at += 1 / self.storm.per_second
        return self.free_at


def run(storms: Sequence[Storm]) -> list[dict[str, Any]]:
    """A row per storm."""
    return [_play(storm) for storm in storms]


def _play(storm: Storm) -> dict[str, Any]:
    server = _Server(storm)
    served = sorted(_served(storm, server, random.Random(storm.seed)))
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
        answered_at = server.answer(now)
        if answered_at is None:
            due = now + delay_seconds(failures, draw.random(), RETRY_AFTER_SECONDS)
            heapq.heapreplace(agenda, (due, failures + 1, host))
        else:
            first.setdefault(host, answered_at)
            due = answered_at + poll_seconds(storm.poll_seconds, draw.random())
            heapq.heapreplace(agenda, (due, 0, host))
    return list(first.values())


def _first_try(storm: Storm, draw: random.Random) -> tuple[float, int]:
    """When a host first asks the server that is back, and how often it failed before."""
    at, failures = draw.random() * storm.poll_seconds - storm.outage_seconds, 0
    while at < 0:
        at += delay_seconds(failures, draw.random())
        failures += 1
    return at, failures
