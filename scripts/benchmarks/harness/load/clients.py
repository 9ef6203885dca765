"""Bare clients of the native protocol, without disk or programs: each job ends when it comes.

As a program, a process of its own, they execute a whole BOT.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import statistics
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import click

from gridbot_client.agent import Room
from gridbot_client.host import description
from gridbot_client.protocol.messages import (
    VERSION,
    Assignment,
    Output,
    Report,
    WorkReply,
    WorkRequest,
    decode_reply,
    encode_request,
)
from scripts.benchmarks.harness.installation import BenchFailed

# A client that got nothing asks again soon: the last jobs are out, or the buffer is dry.
_EMPTY_SECONDS = 0.05
_ANSWER_SECONDS = 60.0


class Client:
    """Joins at once; each instance is a host of its own."""

    def __init__(self, url: str, key: str, name: str) -> None:
        self._connection = http.client.HTTPConnection(
            url.removeprefix("http://"), timeout=_ANSWER_SECONDS
        )
        self._host = description.attributes(Room(1, 4096), Path("/tmp"))
        joining = {"host": self._host, "mac": name, "accepts": []}
        answer = self._send_json("POST", "/api/v1/clients", key, joining)
        self.token = str(answer["token"])
        self.protocol = int(answer.get("protocol", 1))  # an older server knows nothing of keys
        if self.protocol == VERSION:
            trusted = {"protocol": VERSION, "trusts": answer["owner_keys"]}
            self._send_json("PUT", "/api/v1/clients/self", self.token, trusted)
        self._seqno = 0
        self._manifests: set[str] = set()

    def close(self) -> None:
        """Hang up; the next request opens a connection again."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def exchange(self, want: int, reports: Sequence[Report]) -> WorkReply:
        """Report what ended and ask for `want` replicas."""
        self._seqno += 1
        request = WorkRequest(
            key=uuid.uuid4().hex,
            seqno=self._seqno,
            host=self._host,
            want=want,
            reports=tuple(reports),
            manifests=tuple(self._manifests),
        )
        reply = decode_reply(self._send("POST", "/rpc", self.token, encode_request(request)))
        self._manifests.update(reply.manifests)
        return reply

    def _send_json(self, method: str, path: str, token: str, document: object) -> Any:
        return json.loads(self._send(method, path, token, json.dumps(document).encode()))

    def _send(self, method: str, path: str, token: str, body: bytes) -> bytes:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status not in (200, 201):
            raise BenchFailed(f"{path} answers {response.status}: {answer[:300]!r}")
        return answer


@dataclass(slots=True)
class Tally:
    """What all clients did together."""

    jobs: int  # to be reported before anybody stops
    reported: dict[int, bytes] = field(default_factory=dict)  # job -> what it "printed"
    seconds: list[float] = field(default_factory=list)  # of each request
    empty: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, seconds: float, reports: Sequence[Report], was_empty: bool) -> None:
        """Note one answered request."""
        with self.lock:
            self.seconds.append(seconds)
            self.empty += was_empty
            for report in reports:
                self.reported[report.id.seq] = report.outputs[0].content or b""


def output(seq: int) -> bytes:
    """What job `seq` is said to have printed: different for each, checkable by anybody."""
    return f"{seq} {hashlib.sha256(str(seq).encode()).hexdigest()}\n".encode()


def report(assignment: Assignment) -> Report:
    """A job that took no time."""
    content = output(assignment.id.seq)
    sha256 = hashlib.sha256(content).hexdigest()
    return Report(
        assignment.id,
        "success",
        exit_code=0,
        outputs=(Output("stdout", sha256, len(content), content),),
    )


def play(client: Client, jobs_per_request: int, tally: Tally, ends_at: float) -> None:
    """Be one client until all jobs are reported, by whomever."""
    reports: list[Report] = []
    with client:
        while len(tally.reported) < tally.jobs and time.monotonic() < ends_at:
            began = time.perf_counter()
            reply = client.exchange(jobs_per_request, reports)
            seconds = time.perf_counter() - began
            tally.add(seconds, reports, not reply.assignments)
            reports = [report(assignment) for assignment in reply.assignments]
            if not reports:
                time.sleep(_EMPTY_SECONDS)


def summary(tally: Tally, seconds: float) -> dict[str, float]:
    """The figures of a run."""
    cuts = statistics.quantiles(tally.seconds, n=100)
    return {
        "jobs": len(tally.reported),
        "requests": len(tally.seconds),
        "empty_requests": tally.empty,
        "seconds": seconds,
        "p50_ms": 1000 * cuts[49],
        "p99_ms": 1000 * cuts[98],
        "cpu_seconds": time.process_time(),
    }


@click.command()
@click.option("--url", required=True)
@click.option("--key-file", type=click.Path(path_type=Path), required=True)
@click.option("--clients", type=int, required=True)
@click.option("--jobs", type=int, required=True)
@click.option("--jobs-per-request", type=int, required=True)
@click.option("--limit-seconds", type=float, required=True)
@click.option("--reported", type=click.Path(path_type=Path), required=True)
def main(
    url: str, key_file: Path, clients: int, jobs: int, jobs_per_request: int,
    limit_seconds: float, reported: Path,
) -> None:  # fmt: skip
    """Execute a BOT of that many jobs; write what was reported, print the figures."""
    key = key_file.read_text().strip()
    players = [Client(url, key, f"load-{number}") for number in range(clients)]
    tally, began = Tally(jobs), time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        ends_at = began + limit_seconds
        playing = [pool.submit(play, one, jobs_per_request, tally, ends_at) for one in players]
    for one in playing:
        one.result()
    seconds = time.monotonic() - began
    with reported.open("wb") as file:
        file.writelines(b"%d\t%b" % item for item in sorted(tally.reported.items()))
    click.echo(json.dumps(summary(tally, seconds)))


if __name__ == "__main__":
    main()
