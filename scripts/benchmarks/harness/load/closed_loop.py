"""A closed loop: on each kept connection the next request goes out when the last is answered."""

from __future__ import annotations

import math
import re
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

SILENT_SECONDS = 60.0  # longer than the server takes to give up on a request

_EMPTY_SECONDS = 0.02  # a host that got nothing asks again after so long
_RECEIVE_BYTES = 1 << 18

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
_RETRY = re.compile(rb"\r\nretry-after: *(\d+)\r\n", re.IGNORECASE)


class LoadFailed(Exception):
    """The server does not do what the measurement needs; the message says what it did."""


class Talk(Protocol):
    """One side of the conversation on a connection."""

    def ask(self) -> bytes:
        """The next request, head and body."""

    def hear(self, reply: bytes) -> int:
        """Take the reply's body in; return how many jobs it brought."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came for a request."""

    status: int
    head: bytes
    body: bytes

    @property
    def closes(self) -> bool:
        """Whether the connection ends with it."""
        return _CLOSE.search(self.head) is not None

    @property
    def retry_seconds(self) -> int | None:
        """How long it asks to wait, if it says so."""
        found = _RETRY.search(self.head)
        return int(found[1]) if found else None


def whole(data: bytes | bytearray) -> Reply | None:
    """The reply, once all of it came."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(data[: end + 2])
    found = _LENGTH.search(head)
    if found is None:
        raise LoadFailed(f"a reply without Content-Length: {head[:200]!r}")
    if len(data) < end + 4 + int(found[1]):
        return None
    return Reply(int(head[9:12]), head, bytes(data[end + 4 :]))


class Line:
    """One kept connection, and the request that is under way on it."""

    def __init__(self, port: int, talk: Talk) -> None:
        self._talk, self._reply = talk, bytearray()
        self.sent_at = 0.0  # s, of the performance counter
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self) -> None:
        """Send the next request."""
        request = self._talk.ask()
        self._reply.clear()
        self.sent_at = time.perf_counter()
        self.socket.sendall(request)

    def receive(self) -> int | None:
        """Take in what came: the jobs of a whole reply, or None when more is to come."""
        part = self.socket.recv(_RECEIVE_BYTES)
        if not part:
            raise LoadFailed("the server hung up in the middle of a request")
        self._reply += part
        reply = whole(self._reply)
        return None if reply is None else self._take(reply)

    def _take(self, reply: Reply) -> int:
        if reply.status != 200:
            raise LoadFailed(f"the server answers {reply.head[:30]!r}: {reply.body[:300]!r}")
        if reply.closes:
            raise LoadFailed("the server does not keep connections")
        return self._talk.hear(reply.body)


@dataclass(slots=True)
class Tally:
    """What came of some requests."""

    jobs: int = 0
    empty: int = 0  # requests that brought none
    delays: list[float] = field(default_factory=list)  # seconds, of each request


class Course:
    """Keeps a request under way on every line, for so many requests or so long."""

    def __init__(self, lines: Sequence[Line], requests: int, seconds: float) -> None:
        self._lines = {line.socket.fileno(): line for line in lines}
        self._left, self._under_way = requests, 0
        self._ends_at = time.perf_counter() + seconds
        self._resting: deque[tuple[float, Line]] = deque()
        self._tally = Tally()

    def run(self) -> Tally:
        """Return when all that was sent is answered."""
        with select.epoll() as poll:
            for number, line in self._lines.items():
                poll.register(number, select.EPOLLIN)
                self._go_on(line, has_got=True)
            while self._under_way:
                self._wait(poll)
        return self._tally

    def _wait(self, poll: select.epoll) -> None:
        ready = poll.poll(_EMPTY_SECONDS if self._resting else SILENT_SECONDS)
        if not ready and not self._resting:
            raise LoadFailed(f"no answer within {SILENT_SECONDS:g} s")
        for number, _ in ready:
            line = self._lines[number]
            jobs = line.receive()
            if jobs is not None:
                self._note(line, jobs)
                self._under_way -= 1
                self._go_on(line, has_got=jobs > 0)
        while self._resting and self._resting[0][0] <= time.perf_counter():
            self._resting.popleft()[1].send()

    def _note(self, line: Line, jobs: int) -> None:
        self._tally.delays.append(time.perf_counter() - line.sent_at)
        self._tally.jobs += jobs
        self._tally.empty += not jobs

    def _go_on(self, line: Line, has_got: bool) -> None:
        """Send the next request, a little later where the last one brought nothing."""
        now = time.perf_counter()
        if self._left <= 0 or now > self._ends_at:
            return
        self._left -= 1
        self._under_way += 1
        if has_got:
            line.send()
        else:
            self._resting.append((now + _EMPTY_SECONDS, line))


def percentile(values: Sequence[float], share: float) -> float:
    """The least of the values that at least this share of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def figures(tally: Tally, seconds: float, cpu_seconds: float) -> dict[str, Any]:
    """A measurement, as it is told."""
    return {
        "requests": len(tally.delays),
        "jobs": tally.jobs,
        "empty": tally.empty,
        "seconds": seconds,
        "p50_ms": 1000 * percentile(tally.delays, 0.50),
        "p99_ms": 1000 * percentile(tally.delays, 0.99),
        "cpu_seconds": cpu_seconds,
    }
