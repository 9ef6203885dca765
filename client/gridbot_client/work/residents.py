"""Programs that stay for further jobs of their BOT: an interpreter starts once, not for each job.

The manifest says how many words of the command start the program; the other words are each job's.
It runs behind walls as any task does, in a slot that it keeps; the BOT's shared inputs are there.
Its standard input is a socket.  For each job it reads a line of JSON, and the contents that this
announces; then it answers in the same way:

    {"arguments": [...], "environment": {...}, "inputs": {NAME: BYTES, ...}}  + contents, in order
    {"exit_code": 0, "outputs": {NAME: BYTES, ...}}                           + contents, in order

No job has a file in common with the program: inputs are read, and outputs written, by the client,
in the job's own slot.  So a program may be hostile and still sees the jobs of its own BOT only.
Limits hold for each job.  A program that exceeds one, ends, or says what is not to be said ends
with its cell, and its job has failed; so do processes that a job left behind.  Between two jobs
nobody watches the program, so it is stopped until the next one.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from gridbot_client.protocol import fields
from gridbot_client.protocol.fields import MAX_BIGINT, ProtocolError, file_name
from gridbot_client.walls.handle import WalledTask
from gridbot_client.work import processes
from gridbot_client.work.slots import ReplicaSlot

_MOST_LINE_BYTES = 64 << 10
_MOST_OUTPUTS = 1000
_BLOCK_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class ResidentJob:
    """A job for a resident program."""

    words: int  # of the command, that start the program
    slot: ReplicaSlot  # the job's own: its inputs are there, and its outputs will be
    inputs: tuple[str, ...]
    most_bytes: int  # of all outputs


class ResidentAnswer:
    """A job's way to the program and back, without waiting for either end."""

    def __init__(
        self, channel: socket.socket, job: ResidentJob, arguments: Sequence[str],
        environment: dict[str, str],
    ) -> None:  # fmt: skip
        self.exit_code: int | None = None  # once the whole answer has come
        self.is_broken = False  # it ended, or said what is not to be said
        self._channel = channel
        self._job = job
        self._to_tell = _told(job, arguments, environment)
        self._to_send = memoryview(next(self._to_tell))
        self._line = bytearray()
        self._said = 0  # the exit code, until the outputs have come as well
        self._left: list[tuple[str, int]] | None = None  # outputs that have not come whole
        self._file: BinaryIO | None = None

    @property
    def is_over(self) -> bool:
        """True once nothing more is to come."""
        return self.is_broken or self.exit_code is not None

    @property
    def events(self) -> int:
        """What to poll the channel for."""
        return select.POLLIN | (select.POLLOUT if self._to_send else 0)

    def go_on(self) -> None:
        """Send and take what can be; the channel does not block."""
        try:
            if self._to_send:
                with suppress(BlockingIOError):
                    self._to_send = self._to_send[self._channel.send(self._to_send) :]
                if not self._to_send:
                    self._to_send = memoryview(next(self._to_tell, b""))
            with suppress(BlockingIOError):
                content = self._channel.recv(_BLOCK_BYTES)
                if not content:
                    raise ProtocolError("the program has closed its standard input")
                self._take(content)
        except (OSError, ValueError, ProtocolError):
            self.is_broken = True
        if self.is_over:
            self.close()

    def close(self) -> None:
        """Close what is open of the job's files.  Idempotent."""
        self._to_tell.close()
        self._close_output()

    def _take(self, content: bytes) -> None:
        if self.exit_code is not None:
            raise ProtocolError("more than the answer")
        if self._left is None:
            self._line += content
            end = self._line.find(b"\n")
            if end < 0 and len(self._line) > _MOST_LINE_BYTES:
                raise ProtocolError("the answer's first line is too long")
            if end < 0:
                return
            self._read_line(bytes(self._line[:end]))
            content = bytes(self._line[end + 1 :])
        self._take_outputs(content)

    def _read_line(self, line: bytes) -> None:
        raw = fields.mapping(fields.parse(line.decode()), "answer")
        self._said = fields.integer(raw, "exit_code", 0, 255, 0)
        found: Mapping[str, Any] = fields.mapping(raw.get("outputs", {}), "outputs")
        self._left = [
            (file_name(name, "output"), fields.integer(found, name, 0, MAX_BIGINT))
            for name in found
        ]
        if len(found) > _MOST_OUTPUTS or sum(found.values()) > self._job.most_bytes:
            raise ProtocolError("too many outputs, or too large ones")

    def _take_outputs(self, content: bytes) -> None:
        assert self._left is not None
        while self._left:
            name, size = self._left[0]
            if self._file is None:
                self._file = _created(self._job.slot, name)
            part, content = content[:size], content[size:]
            self._file.write(part)
            self._left[0] = name, size - len(part)
            if len(part) < size:
                return
            self._close_output()
            del self._left[0]
        if content:
            raise ProtocolError("more than the answer")
        self.exit_code = self._said

    def _close_output(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class ResidentProgram:
    """A program that has been started, behind its walls."""

    def __init__(self, task: WalledTask, channel: socket.socket, home: ReplicaSlot) -> None:
        self.task = task
        self.channel = channel
        self.home = home  # where its standard output and error are
        self._cpu_seconds = 0.0

    def wait(self, answered: ResidentAnswer, seconds: float) -> bool:
        """Wait for an answer, or for the program's end; True if either has come."""
        until = time.monotonic() + seconds
        while not answered.is_over:
            poll = select.poll()
            poll.register(self.channel, answered.events)
            poll.register(self.task.control, select.POLLIN)
            found = poll.poll(max(0.0, 1000 * (until - time.monotonic())))
            if not found or any(at != self.channel.fileno() for at, _ in found):
                return bool(found)
            answered.go_on()
        return True

    def take_streams(self, job: ResidentJob) -> None:
        """Move what it has printed since to a job's slot.  Raises OSError.

        Of more than the job may return, the end.
        """
        home, slot = self.home, job.slot
        for source, target in ((home.stdout, slot.stdout), (home.stderr, slot.stderr)):
            # A lease of the program's would hold up a thread that waits: fcntl(2).
            descriptor = os.open(source, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "r+b") as printed, target.open("wb") as kept:
                size = os.fstat(descriptor).st_size
                printed.seek(max(0, size - job.most_bytes - 1))
                shutil.copyfileobj(printed, kept)
                printed.truncate(0)

    def cpu_seconds(self) -> float:
        """CPU time of it and its ended children since this was asked last."""
        return self.since_last(processes.cpu_seconds(_children(self.task.pid)))

    def since_last(self, cpu_seconds: float) -> float:
        """CPU time of the present job, of that of the program's whole life."""
        before, self._cpu_seconds = self._cpu_seconds, cpu_seconds
        return max(0.0, cpu_seconds - before)

    def is_alone(self) -> bool:
        """True if no job has left a process behind."""
        own = _children(self.task.pid)
        return len(own) == 1 and not _children(*own)

    def close(self) -> None:
        """Close the channel; the cell ends by itself."""
        self.channel.close()


def _told(
    job: ResidentJob, arguments: Sequence[str], environment: dict[str, str]
) -> Generator[bytes, None, None]:
    """Yield, in pieces, what the program is told.  No piece is empty."""
    paths = {name: job.slot.work / name for name in job.inputs}
    head = {
        "arguments": list(arguments),
        "environment": environment,
        "inputs": {name: path.stat().st_size for name, path in paths.items()},
    }
    yield json.dumps(head).encode() + b"\n"
    for path in paths.values():
        with path.open("rb") as file:
            while piece := file.read(_BLOCK_BYTES):
                yield piece


def _created(slot: ReplicaSlot, name: str) -> BinaryIO:
    """Make a file for an output.  Raises OSError, also if it would replace an input."""
    path = slot.work / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("xb")


def _children(*parents: int) -> list[int]:
    """Children of processes, by any of their threads; empty if the kernel does not tell."""
    found: list[int] = []
    for parent in parents:
        with suppress(OSError, ValueError):
            for thread in os.listdir(f"/proc/{parent}/task"):
                text = Path(f"/proc/{parent}/task/{thread}/children").read_text()
                found += [int(pid) for pid in text.split()]
    return found
