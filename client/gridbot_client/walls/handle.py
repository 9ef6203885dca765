"""The client's end of its warden: starts it, orders cells, and follows each task to its end."""

from __future__ import annotations

import array
import errno
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gridbot_client.walls.cells import Cell, NextTask
from gridbot_client.walls.inside import (
    END,
    ENDED,
    FAILED,
    MOST_ORDER_BYTES,
    NEXT,
    PAUSE,
    REFUSED,
    RESUME,
    STARTED,
    TERMINATE,
)

_START_SECONDS = 60.0  # far more than a start takes, on a machine that swaps
_END_SECONDS = 30.0
_MESSAGE_BYTES = 64 << 10
_PACKAGES = Path(__file__).resolve().parents[2]
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[2]);"
    " from gridbot_client.walls.warden import main; main(int(sys.argv[1]))"
)
_KEPT_VARIABLES = ("LD_LIBRARY_PATH",)  # which this Python may need


class WardenLost(OSError):
    """The warden, or a task's first process, ended before its task."""


class NotExecutable(OSError):
    """The program itself cannot be executed; any other error of a start is this machine's."""


class WalledTask:
    """A task in its cell.  `pid` is that of the first process, below which all of it is found."""

    def __init__(self, control: socket.socket, pid: int, *, stays: bool) -> None:
        self.pid = pid
        self._control = control
        self._stays = stays
        self._lock = threading.Lock()

    def ended_within(self, seconds: float) -> bool:
        """Wait for the end of the program, and of all that it left; True if it has ended."""
        return bool(select.select([self._control], [], [], seconds)[0])

    def terminate(self) -> None:
        """Send SIGTERM to the process group of the program.  From any thread."""
        self._say(TERMINATE)

    def finish(self) -> tuple[int, float]:
        """Kill what is left; return the exit code, as subprocess has it, and CPU seconds of all.

        Raises WardenLost if nobody can tell.  A cell that stays is left to `next` or `close`.
        """
        self._say(END)
        if not self.ended_within(_END_SECONDS):
            # A hostile task at level 1 may have stopped it, on a kernel whose Landlock is old.
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        said = _hear(self._control)
        if said[0] != ENDED or not self._stays:
            self.close()
        if said[0] != ENDED:
            raise WardenLost(f"the first process of the task is gone: {said}")
        return os.waitstatus_to_exitcode(int(said[1])), float(said[2])

    def pause(self) -> None:
        """Let nothing of it run until `resume`."""
        self._say(PAUSE)

    def resume(self) -> None:
        """Let it run again."""
        self._say(RESUME)

    def next(self, program: NextTask, stdout: int, stderr: int) -> WalledTask:
        """Start another program in a cell that stays, once the one before is finished.

        Raises OSError, also if the cell serves no more; NotExecutable if that is no program.
        """
        order = NEXT + program.encode()
        if len(order) > MOST_ORDER_BYTES:
            raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
        socket.send_fds(self._control, [order], [stdout, stderr])
        _hear_start(self._control)
        return WalledTask(self._control, self.pid, stays=True)

    def close(self) -> None:
        """End the cell; returns when nothing of it is left.  Idempotent."""
        with self._lock, suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        with suppress(OSError):
            while _receive(self._control):
                pass
        with self._lock:
            self._control.close()

    @property
    def control(self) -> socket.socket:
        """Readable once the program has ended."""
        return self._control

    def _say(self, word: bytes) -> None:
        with self._lock, suppress(OSError):
            self._control.send(word)


class Warden:
    """Starts tasks behind walls; safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def start(
        self, cell: Cell, stdout: int, stderr: int, groups: Sequence[int] = (),
        channel: Sequence[int] = (),
    ) -> WalledTask:  # fmt: skip
        """Start the program of a cell.  Raises OSError; NotExecutable if that is no program."""
        control, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with far:
                self._order(cell, (far.fileno(), stdout, stderr, *channel, *groups))
            return WalledTask(control, _hear_start(control), stays=cell.stays)
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

    def _order(self, cell: Cell, descriptors: Sequence[int]) -> None:
        order = os.memfd_create("cell")
        try:
            os.write(order, cell.encode())
            self._send([order, *descriptors])
        finally:
            os.close(order)

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


def _hear_start(control: socket.socket) -> int:
    """Wait for the start of a task; return the pid of its first process.  Raises OSError."""
    control.settimeout(_START_SECONDS)
    try:
        said = _hear(control)
    except TimeoutError:
        raise OSError(f"the warden has not answered for {_START_SECONDS:.0f} s") from None
    control.settimeout(None)
    if said[0] == STARTED:
        return int(said[1])
    if said[0] in (REFUSED, FAILED):
        raise (NotExecutable if said[0] == REFUSED else OSError)(int(said[1]), said[2])
    raise WardenLost("the warden is gone")


def _hear(control: socket.socket) -> list[str]:
    """Next message of a first process, as a word and two more; [""] if it is gone."""
    return _receive(control).decode(errors="replace").split(" ", 2)


def _receive(control: socket.socket) -> bytes:
    """Next message, empty at the end.

    If the other end closed before it read all of ours, that is an error once, before what it said.
    """
    while True:
        with suppress(ConnectionResetError):
            return control.recv(_MESSAGE_BYTES)
