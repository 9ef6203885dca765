"""The load generator, a process of its own: hosts that report what they got and ask for more.

One thread, kept connections, and bodies joined from parts that were encoded before: what it costs
is told with the rest.  It takes a plan per line on stdin, warms the server up, says `ready`, and
at `go` measures and prints one line of figures; both are JSON.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Protocol

from gridbot_client.protocol import (
    Output,
    ReplicaId,
    Report,
    Scalar,
    WorkRequest,
    encode_request,
)

from . import boinc_hosts
from .boinc_hosts import BoincHost, BoincHosts, NotServed

HOST: Mapping[str, Scalar] = {
    "Name": "node1.cluster",
    "NumCpus": 16,
    "Memory": 65_536,
    "Disk": 102_400,
    "OpSys": "LINUX",
    "Arch": "X86_64",
    "Platform": "linux-x86_64",
    "ClientVersion": "0.1.0",
    "CpuModel": "AMD EPYC Processor",
    "IsPilot": False,
    "IsDedicated": False,
}

RPC = "/rpc"

_CONTENT = b"lod score 3.14159 at theta 0.05\n"
_EMPTY_SECONDS = 0.02  # a host that got nothing asks again after so long
_SILENT_SECONDS = 60.0  # longer than the server takes to give up on a request
_RECEIVE_BYTES = 1 << 18

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
_ASSIGNED = re.compile(rb'"id":\[(\d+,\d+,\d+)\]')
_MANIFEST = re.compile(rb'"([0-9a-f]{64})":\{"text"')


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured: until `seconds` are over, or `requests` are answered."""

    port: int
    connections: int
    jobs_per_rpc: int
    seconds: float
    requests: int
    hosts: int = 0  # that take turns at the connections; 0: as many as connections
    path: str = RPC
    warm_up: int = 0  # requests before, at least one for each host
    key: str = ""  # of the account to which the hosts belong, if they are BOINC clients

    def hosts_of(self, connection: int) -> range:
        """The numbers of the hosts that use a connection in turn."""
        return range(connection, max(self.hosts, self.connections), self.connections)


class LoadFailed(Exception):
    """The server does not do what the measurement needs; the message says what it did."""


# --------------------------------------------------------------------------------- what is said


def token(host: int) -> str:
    """The token of a host of the load, by its number."""
    return f"load-{host}"


def request_template() -> bytes:
    """A request with holes: key, seqno, replicas wanted, reports, manifests."""
    request = WorkRequest("KEY", 123_456_789, HOST, 987_654, manifests=("MANIFESTS",))
    return _with_holes(
        encode_request(request),
        {
            b"KEY": b"%b",
            b"123456789": b"%d",
            b"987654": b"%d",
            b'"reports":[]': b'"reports":[%b]',
            b'"MANIFESTS"': b"%b",
        },
    )


def report_template() -> bytes:
    """A report of success with one small output, and a hole for the replica."""
    sha256 = hashlib.sha256(_CONTENT).hexdigest()
    output = Output("stdout", sha256, len(_CONTENT), _CONTENT)
    report = Report(
        ReplicaId(1, 2, 3), "success", exit_code=0, cpu_seconds=12.5, wall_seconds=13.25,
        outputs=(output,), stdout=_CONTENT.decode(),
    )  # fmt: skip
    body = encode_request(WorkRequest("", 0, {}, 0, reports=(report,)))
    start, end = body.index(b'"reports":[') + 11, body.index(b'],"manifests"')
    return _with_holes(body[start:end], {b"[1,2,3]": b"[%b]"})


def _with_holes(body: bytes, holes: Mapping[bytes, bytes]) -> bytes:
    template = body.replace(b"%", b"%%")
    for mark, hole in holes.items():
        assert template.count(mark) == 1, "a mark is found once"
        template = template.replace(mark, hole)
    return template


def _head(path: str, token: str) -> bytes:
    """The head of a request, with a hole for the length of its body."""
    lines = (
        f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token}",
        "Content-Type: application/json", "Content-Length: %d", "", "",
    )  # fmt: skip
    return "\r\n".join(lines).encode()


class Talk(Protocol):
    """One side of the conversation on a connection."""

    def ask(self) -> bytes:
        """The next request, head and body."""

    def hear(self, reply: bytes) -> int:
        """Take the reply's body in; return how many jobs it brought."""


@dataclass(slots=True)
class Host:
    """One client of the server."""

    head: bytes
    reports: list[bytes] = field(default_factory=list)
    seqno: int = 0


class Hosts:
    """Hosts that use one connection in turn, each with the jobs that it got last."""

    def __init__(self, plan: Plan, hosts: Sequence[Host], manifests: set[bytes]) -> None:
        self._want = plan.jobs_per_rpc
        self._turns, self._manifests = cycle(hosts), manifests
        self._request, self._report = request_template(), report_template()
        self._host = hosts[0]

    def ask(self) -> bytes:
        """Report what the next host got last, ask for as much again."""
        self._host = host = next(self._turns)
        host.seqno += 1
        body = self._request % (
            b"key-%d" % host.seqno,
            host.seqno,
            self._want,
            b",".join([self._report % name for name in host.reports]),
            b",".join([b'"%b"' % name for name in self._manifests]),
        )
        return host.head % len(body) + body

    def hear(self, reply: bytes) -> int:
        """Note what the host got."""
        self._host.reports = _ASSIGNED.findall(reply)
        if not reply.endswith(b'"manifests":{}}'):
            self._manifests.update(_MANIFEST.findall(reply))
        return len(self._host.reports)


class Echo:
    """Sends one body of a usual size again and again: what HTTP alone costs."""

    def __init__(self, plan: Plan) -> None:
        self._jobs = plan.jobs_per_rpc
        body = boinc_hosts.usual(self._jobs) if plan.key else _usual(self._jobs)
        self._request = _head(plan.path, token(0)) % len(body) + body

    def ask(self) -> bytes:
        """The same as ever."""
        return self._request

    def hear(self, reply: bytes) -> int:  # noqa: ARG002  # there is nothing in it
        """As if it were the jobs asked for, so that nobody rests."""
        return self._jobs


def _usual(jobs: int) -> bytes:
    """The body of a usual request of a native client, that reports so many jobs."""
    reports = [report_template() % b"1,%d,1" % seq for seq in range(jobs)]
    return request_template() % (b"key", 1, jobs, b",".join(reports), b"")


# ------------------------------------------------------------------------------------ the wire


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
        end = self._reply.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(self._reply[: end + 2])
        found = _LENGTH.search(head)
        if found is None:
            raise LoadFailed(f"a reply without Content-Length: {head[:200]!r}")
        if len(self._reply) < end + 4 + int(found[1]):
            return None
        return self._take(head, bytes(self._reply[end + 4 :]))

    def _take(self, head: bytes, body: bytes) -> int:
        if not head.startswith(b"HTTP/1.1 200"):
            raise LoadFailed(f"the server answers {head[:30]!r}: {body[:300]!r}")
        if _CLOSE.search(head):
            raise LoadFailed("the server does not keep connections")
        return self._talk.hear(body)


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
        ready = poll.poll(_EMPTY_SECONDS if self._resting else _SILENT_SECONDS)
        if not ready and not self._resting:
            raise LoadFailed(f"no answer within {_SILENT_SECONDS:g} s")
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


# ---------------------------------------------------------------------------------- the process


class Load:
    """All hosts; they keep what they got from one plan to the next."""

    def __init__(self) -> None:
        self._hosts: dict[int, Host] = {}
        self._boinc_hosts: dict[int, BoincHost] = {}
        self._manifests: set[bytes] = set()

    def lines(self, plan: Plan) -> list[Line]:
        """Connect."""
        return [Line(plan.port, self.talk(plan, number)) for number in range(plan.connections)]

    def talk(self, plan: Plan, connection: int) -> Talk:
        """Whoever speaks on a connection."""
        numbers = plan.hosts_of(connection)
        if plan.path == boinc_hosts.PATH:
            known = self._boinc_hosts
            clients = [known.setdefault(number, BoincHost(number, plan.key)) for number in numbers]
            return BoincHosts(plan.jobs_per_rpc, clients)
        if plan.path != RPC:
            return Echo(plan)
        hosts = [
            self._hosts.setdefault(number, Host(_head(RPC, token(number)))) for number in numbers
        ]
        return Hosts(plan, hosts, self._manifests)

    def measure(self, plan: Plan) -> Iterator[dict[str, Any]]:
        """Warm up and say so; when asked to go on, give the figures."""
        lines = self.lines(plan)
        try:
            Course(lines, max(plan.warm_up, plan.hosts, plan.connections), _SILENT_SECONDS).run()
            yield {"ready": True}
            cpu, began = time.process_time(), time.perf_counter()
            tally = Course(lines, plan.requests, plan.seconds).run()
            seconds = time.perf_counter() - began
            yield figures(tally, seconds, time.process_time() - cpu)
        finally:
            for line in lines:
                line.socket.close()


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


def main() -> None:
    """Serve plans until there are no more; a failure is told and ends it."""
    load = Load()
    try:
        for plan in sys.stdin:
            for answer in load.measure(Plan(**json.loads(plan))):
                print(json.dumps(answer), flush=True)
                if "ready" in answer:
                    sys.stdin.readline()
    except (LoadFailed, NotServed, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
    except KeyboardInterrupt:
        sys.exit(1)  # whoever started us says what there is to say


if __name__ == "__main__":
    main()
