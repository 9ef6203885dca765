"""The load's hosts as native clients: bodies are joined from parts that were encoded before."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle

from gridbot_client.protocol.messages import (
    VERSION,
    Output,
    ReplicaId,
    Report,
    Scalar,
    WorkRequest,
    encode_request,
)

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

PATH = "/rpc"

_CONTENT = b"lod score 3.14159 at theta 0.05\n"
_ASSIGNED = re.compile(rb'"id":\[(\d+,\d+,\d+)\]')
_MANIFEST = re.compile(rb'"([0-9a-f]{64})":\{"text"')


def token(host: int) -> str:
    """The token of a host of the load, by its number."""
    return f"load-{host}"


def request_template() -> bytes:
    """A request with holes: protocol, key, seqno, replicas wanted, reports, manifests."""
    request = WorkRequest("KEY", 123_456_789, HOST, 987_654, manifests=("MANIFESTS",))
    return _with_holes(
        encode_request(request),
        {
            b'"protocol":%d' % VERSION: b'"protocol":%d',
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


_REQUEST, _REPORT = request_template(), report_template()


def head(path: str, token: str) -> bytes:
    """The head of a request, with a hole for the length of its body."""
    lines = (
        f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token}",
        "Content-Type: application/json", "Content-Length: %d", "", "",
    )  # fmt: skip
    return "\r\n".join(lines).encode()


@dataclass(slots=True)
class Host:
    """One client of the server; `manifests` are those that it has, or its neighbours."""

    head: bytes
    manifests: set[bytes]
    protocol: int = VERSION
    reports: list[bytes] = field(default_factory=list)
    seqno: int = 0

    def ask(self, want: int) -> bytes:
        """Report what it got last, ask for so many."""
        self.seqno += 1
        body = _REQUEST % (
            self.protocol,
            b"key-%d" % self.seqno,
            self.seqno,
            want,
            b",".join([_REPORT % name for name in self.reports]),
            b",".join([b'"%b"' % name for name in self.manifests]),
        )
        return self.head % len(body) + body

    def hear(self, reply: bytes) -> int:
        """Note what it got; return how many."""
        self.reports = _ASSIGNED.findall(reply)
        if not reply.endswith(b'"manifests":{}}'):
            self.manifests.update(_MANIFEST.findall(reply))
        return len(self.reports)


def host(token: str, manifests: set[bytes], protocol: int = VERSION) -> Host:
    """The host that a token names."""
    return Host(head(PATH, token), manifests, protocol)


class Hosts:
    """Hosts that use one connection in turn, each with the jobs that it got last."""

    def __init__(self, want: int, hosts: Sequence[Host]) -> None:
        self._want, self._turns, self._host = want, cycle(hosts), hosts[0]

    def ask(self) -> bytes:
        """What the next host says."""
        self._host = next(self._turns)
        return self._host.ask(self._want)

    def hear(self, reply: bytes) -> int:
        """Let the host that asked take its reply."""
        return self._host.hear(reply)


def usual(jobs: int) -> bytes:
    """The body of a usual request, that reports so many jobs."""
    reports = [_REPORT % b"1,%d,1" % seq for seq in range(jobs)]
    return _REQUEST % (VERSION, b"key", 1, jobs, b",".join(reports), b"")
