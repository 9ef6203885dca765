"""The client's end of its warden: starts it, orders cells, and follows each task to its end."""

from __future__ import annotations

import array
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gridbot_client.walls.cells import Cell

_START_SECONDS = 60.0  # far more than a start takes, on a machine that swaps
_MESSAGE_BYTES = 64 << 10
_PACKAGES = Path(__file__).resolve().parents[2]
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[2]);"
    " from gridbot_client.walls.warden import main; main(int(sys.argv[1]))"
)
_KEPT_VARIABLES = ("LD_LIBRARY_PATH",)  # which this Python may need


class WardenLost(OSError):
    """The warden, or a task's first process, ended before its task."""


class WalledTask:
    """A task in its cell.  `pid` is that of the first process, below which all of it is found."""

    def __init__(self, control: socket.socket, pid: int) -> None:
        self.pid = pid
        self._control = control
        self._lock = threading.Lock()
        self._end: tuple[int, float] | None = None

    def ended_within(self, seconds: float) -> bool:
        """Wait for the end of the program, and of all that it left; True if it has ended."""
        return self._end is not None or bool(select.select([self._control], [], [], seconds)[0])

    def terminate(self) -> None:
        """Send SIGTERM to the process group of the program.  From any thread."""
        self._say(b"T")

    def finish(self) -> tuple[int, float]:
        """Kill what is left; return the exit code, as subprocess has it, and CPU seconds of all.

        Raises WardenLost if nobody can tell.
        """
        self._say(b"K")
        said = _hear(self._control)
        while said and _receive(self._control):  # until nothing is left
            pass
        with self._lock:
            self._control.close()
        if "ended" not in said:
            raise WardenLost(f"the first process of the task is gone: {said}")
        status = said["ended"]
        return os.waitstatus_to_exitcode(int(status)), float(said["cpu_seconds"])

    def _say(self, word: bytes) -> None:
        with self._lock, suppress(OSError):
            self._control.send(word)


class Warden:
    """Starts tasks behind walls; safe to use from many threads.  Raises OSError if it cannot."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def start(self, cell: Cell, stdout: int, stderr: int, groups: Sequence[int] = ()) -> WalledTask:
        """Start the program of a cell.  Raises OSError, also if it cannot be executed."""
        control, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far, os.fdopen(os.memfd_create("cell"), "w+b") as order:
            order.write(cell.encode())
            order.flush()
            self._send([order.fileno(), far.fileno(), stdout, stderr, *groups])
        try:
            control.settimeout(_START_SECONDS)
            said = _hear(control)
            control.settimeout(None)
            if "started" in said:
                return WalledTask(control, int(said["started"]))
            raise OSError(said.get("errno", 0), said.get("error", "the warden is gone"))
        except BaseException:
            control.close()
            raise

    def begin(self) -> None:
        """Start the warden now; it also starts with its first task."""
        with self._lock:
            self._connected()

    def close(self) -> None:
        """End the warden and all tasks; returns when none is left."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        if self._socket:
            self._socket.close()
        if self._process:
            self._process.wait()
        self._socket = self._process = None

    def _send(self, descriptors: Sequence[int]) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        with self._lock:
            for _ in range(2):
                try:
                    self._connected().sendmsg([b"S"], rights)
                    return
                except (BrokenPipeError, ConnectionResetError):  # somebody killed it
                    self._forget()
        raise WardenLost("the warden does not stay")

    def _connected(self) -> socket.socket:
        if self._process is None or self._socket is None:
            self._socket, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with far:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _PROGRAM, str(far.fileno()), str(_PACKAGES)],
                    env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[far.fileno()],
                    start_new_session=True,
                )
        return self._socket


def _hear(control: socket.socket) -> dict[str, Any]:
    """Next message of a first process; empty if it is gone."""
    text = _receive(control)
    found: dict[str, Any] = json.loads(text) if text else {}
    return found


def _receive(control: socket.socket) -> bytes:
    """Next message, empty at the end.

    If the other end closed before it read all of ours, that is an error once, before what it said.
    """
    while True:
        with suppress(ConnectionResetError):
            return control.recv(_MESSAGE_BYTES)
