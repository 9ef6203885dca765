"""Requests in an open loop, a process of its own: they come at their rate, answered or not.

Each is the next host's: it reports what it was given last, asks for more, and comes again however
it was answered.  The plan comes on stdin, `ready` is said, and at `go` the process sends for so
long and prints one line of figures; all are JSON.
"""

from __future__ import annotations

import errno
import json
import select
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from . import native_hosts
from .closed_loop import SILENT_SECONDS, Course, Line, LoadFailed, Reply, percentile, whole
from .native_hosts import Host, Hosts

_PATIENCE_SECONDS = 10.0  # after that long a request counts as failed
_STEP_SECONDS = 0.002
_MOST_AT_ONCE = 64  # requests sent before answers are looked at
_RECEIVE_BYTES = 1 << 16
_INTRODUCERS = 32  # connections on which the hosts are seen first


@dataclass(frozen=True, slots=True)
class Flood:
    """What comes: so many requests per second, for so long."""

    port: int
    per_second: float
    seconds: float
    sockets: int  # open at once, at most: what would need more is not sent
    jobs_per_rpc: int
    hosts: Sequence[int]  # their numbers: from, to
    keeps: bool  # connections, as a proxy does; else each request has one of its own


@dataclass(slots=True)
class Outcome:
    """What came of the requests of one kind."""

    served: int = 0
    refused: int = 0
    silent: int = 0  # refusals without a time to come back
    failed: int = 0  # no answer in time, or the connection broke
    jobs: int = 0

    @property
    def sent(self) -> int:
        """All of them."""
        return self.served + self.refused + self.failed


@dataclass(slots=True)
class Call:
    """A request under way."""

    wire: socket.socket
    host: Host
    request: bytes
    sent_at: float
    reports: bool
    reply: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class Tally:
    """All that came of a flood."""

    reporting: Outcome = field(default_factory=Outcome)  # requests that carry reports
    asking: Outcome = field(default_factory=Outcome)  # the others
    served: list[float] = field(default_factory=list)  # s until the answer
    refused: list[float] = field(default_factory=list)
    retry: Counter[int] = field(default_factory=Counter)  # s to wait, by how often that was said

    def note(self, call: Call, reply: Reply, seconds: float) -> None:
        """Count an answer."""
        outcome = self.reporting if call.reports else self.asking
        if reply.status == 200:
            outcome.served += 1
            outcome.jobs += call.host.hear(reply.body)
            self.served.append(seconds)
            return
        outcome.refused += 1
        self.refused.append(seconds)
        if reply.retry_seconds is None:
            outcome.silent += 1
        else:
            self.retry[reply.retry_seconds] += 1

    def fail(self, call: Call) -> None:
        """Count a request that was not answered."""
        (self.reporting if call.reports else self.asking).failed += 1


class Arrivals:
    """Sends when it is time, whatever is still under way."""

    def __init__(self, flood: Flood) -> None:
        manifests: set[bytes] = set()
        self._flood = flood
        hosts = [
            native_hosts.host(native_hosts.token(number), manifests)
            for number in range(*flood.hosts)
        ]
        # Those that have no request under way, the one that asked longest ago first.
        self._turns = deque(hosts)
        self._address = ("127.0.0.1", flood.port)
        self._calls: dict[int, Call] = {}
        self._idle: dict[int, socket.socket] = {}
        self._poll = select.epoll()
        self._sent = 0
        self.tally = Tally()

    def introduce(self) -> None:
        """Let each host be seen once: what the server notes of new ones is not measured."""
        turns = [list(islice(self._turns, n, None, _INTRODUCERS)) for n in range(_INTRODUCERS)]
        lines = [Line(self._flood.port, Hosts(0, hosts)) for hosts in turns if hosts]
        Course(lines, len(self._turns), SILENT_SECONDS).run()
        for line in lines:
            line.socket.close()

    def run(self) -> Tally:
        """Send for as long as the plan says; return when all is answered, or failed."""
        began = now = time.perf_counter()
        ends, swept = began + self._flood.seconds, began
        while now < ends or self._calls:
            if now < ends:
                self._send_due(now, int((now - began) * self._flood.per_second))
            for number, _ in self._poll.poll(_STEP_SECONDS):
                if call := self._calls.get(number):
                    self._hear(call)
                else:  # the server closed what it had kept
                    self._idle.pop(number).close()
            now = time.perf_counter()
            if now > swept + 1:
                swept = now
                self._give_up(now - _PATIENCE_SECONDS)
        return self.tally

    def _send_due(self, now: float, due: int) -> None:
        due = min(due - self._sent, _MOST_AT_ONCE)
        for _ in range(due):
            if len(self._calls) >= self._flood.sockets or not self._turns:
                break
            self._sent += 1
            self._send(now)

    def _send(self, now: float) -> None:
        host = self._turns.popleft()
        request = host.ask(self._flood.jobs_per_rpc)
        wire = self._idle.popitem()[1] if self._idle else self._connected()
        self._calls[wire.fileno()] = call = Call(wire, host, request, now, bool(host.reports))
        self._speak(call)

    def _connected(self) -> socket.socket:
        wire = socket.socket()
        wire.setblocking(False)
        wire.connect_ex(self._address)
        self._poll.register(wire, select.EPOLLIN)
        return wire

    def _speak(self, call: Call) -> None:
        """Send the request, or wait until it can be sent."""
        try:
            sent = call.wire.send(call.request)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                self._fail(call)
                return
            sent = 0
        call.request = call.request[sent:]
        self._poll.modify(call.wire, select.EPOLLIN | (select.EPOLLOUT if call.request else 0))

    def _hear(self, call: Call) -> None:
        if call.request:
            self._speak(call)
            return
        try:
            part = call.wire.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self._fail(call)
            return
        call.reply += part
        if reply := whole(call.reply):
            self.tally.note(call, reply, time.perf_counter() - call.sent_at)
            self._end(call, keep=self._flood.keeps and not reply.closes)

    def _fail(self, call: Call) -> None:
        self.tally.fail(call)
        self._end(call, keep=False)

    def _end(self, call: Call, keep: bool) -> None:
        number = call.wire.fileno()
        del self._calls[number]
        self._turns.append(call.host)
        if keep:
            self._idle[number] = call.wire
        else:
            call.wire.close()

    def _give_up(self, before: float) -> None:
        for call in [call for call in self._calls.values() if call.sent_at < before]:
            self._fail(call)

    def close(self) -> None:
        """Hang up."""
        for wire in self._idle.values():
            wire.close()
        self._poll.close()

    def figures(self, seconds: float, cpu_seconds: float) -> dict[str, Any]:
        """What came of it, as it is told."""
        tally = self.tally
        return {
            "reporting": asdict(tally.reporting),
            "asking": asdict(tally.asking),
            "sent": self._sent,
            "seconds": seconds,
            "served_p99_ms": 1000 * percentile(tally.served or [0.0], 0.99),
            "refused_p99_ms": 1000 * percentile(tally.refused or [0.0], 0.99),
            "retry": dict(tally.retry),
            "cpu_seconds": cpu_seconds,
        }


def main() -> None:
    """Serve one plan."""
    try:
        arrivals = Arrivals(Flood(**json.loads(sys.stdin.readline())))
        arrivals.introduce()
        print(json.dumps({"ready": True}), flush=True)
        sys.stdin.readline()
        cpu, began = time.process_time(), time.perf_counter()
        arrivals.run()
        arrivals.close()
        seconds = time.perf_counter() - began
        print(json.dumps(arrivals.figures(seconds, time.process_time() - cpu)), flush=True)
    except (LoadFailed, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
    except KeyboardInterrupt:
        sys.exit(1)  # whoever started us says what there is to say


if __name__ == "__main__":
    main()
