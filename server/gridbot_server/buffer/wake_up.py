"""Wake-ups between the processes of a machine: a byte in a named pipe beside the buffer.

Web processes wake the feeder when the buffer runs low; the feeder wakes web processes when it has
put jobs in.  Losing a wake-up costs time, never a job.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

_CLOCK_GRAIN_NS = 100_000_000


def notify(buffer_path: Path) -> None:
    """Wake the feeder if it sleeps; never blocks, and does nothing where there is no feeder."""
    with contextlib.suppress(OSError):
        _write(feeder_pipe(buffer_path))


class WebPipes:
    """The web processes that have a pipe, for who wakes them often."""

    def __init__(self, buffer_path: Path) -> None:
        self._folder, self._pattern = buffer_path.parent, f"{buffer_path.stem}.web-*"
        self._found: list[Path] = []
        self._listed_at = 0  # ns

    def notify(self) -> None:
        """Wake them; remove the pipes of those that have ended."""
        # What was made within the grain of the clock, after the last listing, is not missed.
        if self._folder.stat().st_mtime_ns > self._listed_at - _CLOCK_GRAIN_NS:
            self._listed_at = time.time_ns()
            self._found = list(self._folder.glob(self._pattern))
        for path in self._found:
            try:
                _write(path)
            except BlockingIOError:  # it is full of wake-ups already
                pass
            except OSError:  # nobody holds the other end
                path.unlink(missing_ok=True)


def feeder_pipe(buffer_path: Path) -> Path:
    """The pipe of this machine's feeder."""
    return buffer_path.with_suffix(".bell")


def web_pipe(buffer_path: Path, process: int) -> Path:
    """The pipe of a web process, by its id."""
    return buffer_path.with_suffix(f".web-{process}")


class Listener(Protocol):
    """A database connection that listens."""

    def fileno(self) -> int:
        """Its socket."""

    def notifies(self, *, timeout: float | None) -> Iterator[object]:
        """What it was notified of."""


class WakeUpPipe:
    """The sleeper's end of a pipe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # It gets its name when it is open: an end that nobody holds is taken for a dead process's.
        made = path.with_name(f"{path.name}.new")
        made.unlink(missing_ok=True)
        os.mkfifo(made, 0o600)
        # Read and write: an end of file would otherwise wake us for ever once a writer left.
        self._descriptor = os.open(made, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        made.rename(path)

    def fileno(self) -> int:
        """The descriptor, which is readable once a wake-up came."""
        return self._descriptor

    def drain(self) -> None:
        """Take the wake-ups that have come."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, 65_536)

    def wait(self, seconds: float, listener: Listener | None = None) -> bool:
        """Sleep until a wake-up comes, at most `seconds`; return whether one did.

        One may also come as a notification to a database connection, or have come there since the
        last sleep, with the answer to a statement: then the socket shows nothing of it.
        """
        if listener and any([True for _ in listener.notifies(timeout=0)]):
            return True
        ends = [self._descriptor, *([listener.fileno()] if listener else [])]
        ready, _, _ = select.select(ends, [], [], seconds)
        if self._descriptor in ready:
            self.drain()
        if listener and listener.fileno() in ready:
            for _ in listener.notifies(timeout=0):
                pass
        return bool(ready)

    def close(self) -> None:
        """Close the pipe and remove it."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def _write(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.write(descriptor, b"!")
    finally:
        os.close(descriptor)
