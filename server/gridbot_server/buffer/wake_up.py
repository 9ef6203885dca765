"""How a web process wakes the feeder: a byte in a named pipe beside the buffer."""

from __future__ import annotations

import contextlib
import os
import select
from pathlib import Path


def notify(buffer_path: Path) -> None:
    """Wake the feeder if it sleeps; never blocks, and does nothing where there is no feeder."""
    with contextlib.suppress(OSError):
        descriptor = os.open(_path(buffer_path), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"!")
        finally:
            os.close(descriptor)


class WakeUpPipe:
    """The feeder's end of the pipe."""

    def __init__(self, buffer_path: Path) -> None:
        path = _path(buffer_path)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # Read and write: an end of file would otherwise wake us for ever once a writer left.
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def wait(self, seconds: float) -> bool:
        """Sleep until a notification comes, at most `seconds`; return whether one did."""
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        if ready:
            os.read(self._descriptor, 65_536)
        return bool(ready)

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._descriptor)


def _path(buffer_path: Path) -> Path:
    return buffer_path.with_suffix(".bell")
