"""A client in the background: started and stopped from another process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from gridbot_client.storage import Folder

# Walls are proven at the start, by attacks that may run into their own limits.
_START_SECONDS, _STOP_SECONDS = 120.0, 60.0
_LOOK_SECONDS = 0.1
_SHOWN_BYTES = 2000  # of what a client says that does not start


class NotStarted(Exception):
    """The client does not run, or did before; the message says why."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # of the client that ended


class NotStopped(Exception):
    """The client still runs; the message says what to do."""


def start(folder: Folder, options: Sequence[str]) -> int:
    """Start a client in a session of its own; return its process id once it holds the folder.

    `options` are those of `gridbot client run`.  Raises NotStarted, also if one runs already.
    """
    if (running := folder.holder()) is not None:
        raise NotStarted(f"it runs already, as process {running}")
    folder.make()
    said = folder.path / "start.log"
    command = [sys.executable, "-m", "gridbot", "client", "run", "--quiet"]
    with said.open("w+") as output:
        process = subprocess.Popen(
            [*command, "--data", str(folder.path), *options], stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        _wait(
            lambda: (folder.identity() is not None and folder.holder() == process.pid)
            or process.poll() is not None,
            _START_SECONDS,
        )  # fmt: skip
        if process.poll() is None:
            return process.pid
        output.seek(0)
        told = output.read(_SHOWN_BYTES).strip().rpartition("\nError: ")[2]  # of wrong usage
        raise NotStarted(told.removeprefix("gridbot: "), max(1, process.returncode))


def stop(folder: Folder) -> bool:
    """End the client of a folder as an interrupt does; False if none runs.  Raises NotStopped."""
    process = folder.holder()
    if process is None:
        return False
    os.kill(process, signal.SIGTERM)
    if not _wait(lambda: folder.holder() != process, _STOP_SECONDS):
        raise NotStopped(f"process {process} has not ended within {_STOP_SECONDS:.0f} s")
    return True


def _wait(fact: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not (found := fact()) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    return found
