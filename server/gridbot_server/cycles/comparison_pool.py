"""A bounded pool of processes that compare contents, beside the transitioner.

Each thread of the pool has a process of its own (`validators.worker`), which it starts again when
it crashed, was killed, or took too long: that is a finding about one comparison, and stops nothing
else.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from gridbot_server.cycles.confined import Confined, ConfinedCommand, NoVerdict
from gridbot_server.cycles.quorum import CRASHED, DIFFERENT, EQUAL
from gridbot_server.validators import compare
from gridbot_server.validators.compare import Answer
from gridbot_server.validators.worker import encode_order

_LEAST_SECONDS = 30.0
_BYTES_PER_SECOND = 1_000_000  # far slower than any validator is
_PIPE_BYTES = 1 << 16


class ComparisonOrder(NamedTuple):
    """Two answers to be compared."""

    validator: str
    one: Answer
    other: Answer
    size: int  # bytes of both
    command: ConfinedCommand | None = None  # a program of the BOT's owner, to compare with

    @property
    def seconds(self) -> float:
        """Time limit."""
        return _LEAST_SECONDS + self.size / _BYTES_PER_SECOND


class ContentVerdict(NamedTuple):
    """What came of it: a verdict, and where they differ, or why there is none."""

    verdict: str
    place: str = ""
    one_has: str = ""
    other_has: str = ""
    why: str = ""


class Crash(Exception):
    """A comparison that came to no end; says why."""


class ComparisonPool:
    """Compares in the background, at most `workers` at once."""

    def __init__(self, workers: int, folder: Path) -> None:
        self.workers = workers
        self._confined = Confined(folder)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="comparison")
        self._own = threading.local()
        self._started: list[_Worker] = []

    def submit(self, orders: Sequence[ComparisonOrder]) -> Future[list[ContentVerdict]]:
        """Carry out some orders, one after another."""
        return self._threads.submit(self._carry_out, orders)

    def close(self) -> None:
        """End all that goes on; what has no finding yet stays due."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._started:
            worker.kill()
        self._confined.close()
        self._threads.shutdown(wait=True)
        for worker in self._started:
            worker.reap()

    def _carry_out(self, orders: Sequence[ComparisonOrder]) -> list[ContentVerdict]:
        if not hasattr(self._own, "worker"):
            self._own.worker = _Worker()
            self._started.append(self._own.worker)
        return [
            _finding_of_command(self._confined, order.command, order)
            if order.command
            else _finding(self._own.worker, order)
            for order in orders
        ]


def _finding_of_command(
    confined: Confined, command: ConfinedCommand, order: ComparisonOrder
) -> ContentVerdict:
    try:
        found = compare.difference_of_names(order.one, order.other) or confined.difference(
            command, order.one, order.other
        )
    except (OSError, NoVerdict) as error:
        return ContentVerdict(CRASHED, why=str(error))
    if found is None:
        return ContentVerdict(EQUAL)
    return ContentVerdict(DIFFERENT, found.place, found.one, found.other, found.rule)


def _finding(worker: _Worker, order: ComparisonOrder) -> ContentVerdict:
    try:
        said = worker.ask(encode_order(order.validator, order.one, order.other), order.seconds)
    except Crash as error:
        return ContentVerdict(CRASHED, why=str(error))
    if "error" in said:
        return ContentVerdict(CRASHED, why=said["error"])
    if said["difference"] is None:
        return ContentVerdict(EQUAL)
    found = said["difference"]
    return ContentVerdict(DIFFERENT, found["place"], found["one"], found["other"], found["rule"])


class _Worker:
    """One process, used by one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # between that thread and who closes
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def ask(self, order: bytes, seconds: float) -> Any:
        """Give an order, and wait for the finding.  Raises Crash."""
        try:
            process = self._running()
            assert process.stdin, "it is a pipe"
            assert process.stdout, "it is a pipe"
            process.stdin.write(order)
            process.stdin.flush()
            return json.loads(_line(process.stdout, seconds))
        except BrokenPipeError:
            raise Crash(self._end()) from None
        except _Over as over:
            why = self._end()
            raise Crash(f"it took longer than {seconds:.0f} s" if over.is_late else why) from None

    def kill(self) -> None:
        """End it for good, from another thread."""
        with self._lock:
            self._is_closed = True
            if self._process:
                self._process.kill()

    def reap(self) -> None:
        """Clean up once nobody asks any more."""
        if self._process:
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_closed:
                raise Crash("the server is stopping")
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-m", "gridbot_server.validators.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={n: os.environ[n] for n in ("LD_LIBRARY_PATH",) if n in os.environ},
                )
            return self._process

    def _end(self) -> str:
        """Kill it if it still runs; say how it ended."""
        process, self._process = self._process, None
        assert process, "it was started"
        process.kill()
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(BrokenPipeError):  # a part of the order may be in its buffer
                if pipe:
                    pipe.close()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"the process that compared them ended with {how}"


class _Over(Exception):
    """No finding will come."""

    def __init__(self, is_late: bool) -> None:
        super().__init__()
        self.is_late = is_late


def _line(pipe: IO[bytes], seconds: float) -> bytes:
    """Read one line.  Raises _Over when the pipe ends, or after so many seconds."""
    end = time.monotonic() + seconds
    text = b""
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise _Over(is_late=True)
        more = os.read(pipe.fileno(), _PIPE_BYTES)
        if not more:
            raise _Over(is_late=False)
        text += more
    return text
