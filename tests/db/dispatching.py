"""A server without HTTP for tests: engine, feeder and cycles over one database and one buffer."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.factories import HOST, make_client

from gridbot_client.protocol.messages import (
    Assignment,
    Output,
    ReplicaId,
    Report,
    Scalar,
    WorkReply,
    WorkRequest,
    decode_reply,
    encode_request,
)
from gridbot_server.buffer.buffer import SchedulingBuffer
from gridbot_server.cycles import deadline, transitioner
from gridbot_server.cycles.comparing import Comparing
from gridbot_server.dispatch.engine import Engine
from gridbot_server.feeder.feeding import Feeder
from gridbot_server.settings import Settings
from gridbot_server.signing import keys
from gridbot_server.storage.db import PostgresConnection
from gridbot_server.storage.files import FolderStore


@dataclass
class Dispatch:
    """Everything between a request and the database; time of the feeder moves on by itself."""

    conn: PostgresConnection
    buffer: SchedulingBuffer
    engine: Engine
    feeder: Feeder
    comparing: Comparing
    store: FolderStore
    _now: Iterator[int] = field(default_factory=lambda: itertools.count(1_000))

    def feed(self) -> int:
        """Let the feeder pass once."""
        return self.feeder.run_once(float(next(self._now)))

    def settle(self) -> int:
        """Let the transitioner work, and the comparisons beside it, until both find nothing."""
        count = 0
        while more := transitioner.run_once(self.conn) + self.comparing.run_once(self.conn):
            count += more
        return count

    def expire(self, *replicas: ReplicaId) -> None:
        """Let the deadlines of these replicas pass."""
        for replica in replicas:
            self.conn.execute(
                "UPDATE lease SET deadline = now() - interval '1 s'"
                " WHERE (bot, seq, replica) = (%s, %s, %s)",
                replica,
            )
        deadline.run_once(self.conn)
        self.settle()


@dataclass
class Caller:
    """A client of the protocol that keeps what it was given, as a real one does."""

    dispatch: Dispatch
    token: str
    host: dict[str, Scalar] = field(default_factory=lambda: dict(HOST))
    seqno: int = 0
    holding: list[ReplicaId] = field(default_factory=list)

    def ask(self, want: int = 100, reports: tuple[Report, ...] = ()) -> WorkReply:
        """Make a new request and take note of its answer."""
        return self.take(self.send(self.request(want, reports)))

    def request(self, want: int = 100, reports: tuple[Report, ...] = ()) -> WorkRequest:
        """Make up a new request."""
        self.seqno += 1
        reported = {report.id for report in reports}
        holding = tuple(name for name in self.holding if name not in reported)
        return WorkRequest(uuid.uuid4().hex, self.seqno, self.host, want, holding, reports)

    def send(self, request: WorkRequest) -> WorkReply:
        """Send a request, and lose the reply unless the caller takes it."""
        token_hash = keys.token_hash(self.token)
        return decode_reply(self.dispatch.engine.handle(token_hash, encode_request(request)))

    def take(self, reply: WorkReply) -> WorkReply:
        """Keep what a reply gave."""
        gone = {*reply.acks, *reply.abort}
        self.holding = [name for name in self.holding if name not in gone]
        self.holding += [item.id for item in reply.assignments]
        return reply


def success(item: Assignment | ReplicaId, text: str = "42") -> Report:
    """The report of a replica that printed `text`."""
    name = item if isinstance(item, ReplicaId) else item.id
    content = text.encode()
    output = Output("stdout", sha256_hex(content), len(content), content)
    return Report(
        name, "success", exit_code=0, cpu_seconds=1.0, wall_seconds=2.0, outputs=(output,)
    )


def failure(item: Assignment | ReplicaId, reason: str = "exit_nonzero") -> Report:
    """The report of a replica that failed."""
    name = item if isinstance(item, ReplicaId) else item.id
    return Report(name, "error", reason, exit_code=1, stderr="it broke")


def sha256_hex(content: bytes) -> str:
    """The hash of a content, as the protocol writes it."""
    return hashlib.sha256(content).hexdigest()


def caller(dispatch: Dispatch, owner: int, host: int | None = None) -> Caller:
    """A new client."""
    _, token = make_client(dispatch.conn, owner, host)
    return Caller(dispatch, token)


@contextmanager
def dispatching(
    dsn: str, conn: PostgresConnection, path: Path, slots: int = 256
) -> Iterator[Dispatch]:
    """Make all the parts, and take them apart."""
    row = conn.execute("SELECT value FROM setting WHERE name = 'database'").fetchone()
    assert row is not None
    buffer = SchedulingBuffer.create(
        path, slots=slots, slot_bytes=1024, machine=uuid.uuid4().hex, database=row[0]
    )
    engine = Engine(dsn, path)
    store = FolderStore(path.parent / "files", path.parent / "uploads")
    comparing = Comparing(store, 2, path.parent / "run")
    try:
        yield Dispatch(conn, buffer, engine, Feeder(conn, buffer), comparing, store)
    finally:
        comparing.close()
        engine.close()
        buffer.close()


@contextmanager
def daemons(settings: Settings, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many processes of cycles on one database."""
    settings.save()
    argv = [sys.executable, "-m", "gridbot_server.cycles.process", "--data", str(settings.data)]
    with (settings.log / "cycles.log").open("ab") as log:
        processes = [subprocess.Popen(argv, stdout=log, stderr=log) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
