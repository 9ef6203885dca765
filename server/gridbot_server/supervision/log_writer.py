"""Who writes what the processes of a server say.

A process that runs cannot be made to write to another file.  So each writes into a pipe, and one
process reads them all and keeps the files short.  It outlives a killed supervisor for as long as
somebody writes; while it is killed itself, what is written waits in the pipes.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from gridbot_server.supervision.log_rotation import FILE_BYTES, RotatedLog, open_log

_PIPE_BYTES = 1 << 20  # what waits for a writer that gets no turn
_READ_BYTES = 64 << 10
_NAME_BYTES = 255
_SETTLED = b"."
_SETTLE_SECONDS = 10.0
_RESTART_SECONDS = 1.0


class LogKeeper:
    """The supervisor's side: makes the pipes, and keeps a writer at work in a folder."""

    def __init__(self, folder: Path, most: int = FILE_BYTES) -> None:
        self._folder, self._most = folder, most
        self._pipes: dict[str, int] = {}  # what the writer reads from, for one that follows it
        self._start()

    def pipe(self, name: str) -> int:
        """Return the end of a new pipe whose other end becomes NAME.log; the caller closes it."""
        read, write = os.pipe2(os.O_CLOEXEC)
        with suppress(OSError):  # beyond a limit of the system's: the usual size does
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        if name in self._pipes:
            os.close(self._pipes[name])
        self._pipes[name] = read
        self._hand_over(name)
        return write

    def tend(self) -> bool:
        """Start another writer if there is none, at most one a second; whether one is at work."""
        if self._process.poll() is None:
            return True
        if time.monotonic() - self._started_at < _RESTART_SECONDS:
            return False
        self._control.close()
        self._start()
        return True

    def settle(self) -> None:
        """Wait until what was written before is in the files."""
        with suppress(OSError):
            self._control.send(_SETTLED)
            self._control.recv(1)

    def close(self) -> None:
        """Wait until all is in the files; all who write have ended."""
        self._control.close()
        try:
            self._process.wait(_SETTLE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for read in self._pipes.values():
            os.close(read)

    def _start(self) -> None:
        self._started_at = time.monotonic()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(_SETTLE_SECONDS)
        module, arguments = (
            "gridbot_server.supervision.log_writer",
            (theirs.fileno(), self._folder, self._most),
        )
        # Nothing of ours is kept open: somebody may wait for our end.
        with theirs, open_log(self._folder / "supervisor.log") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *map(str, arguments)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,  # ^C is for the supervisor
            )
        for name in self._pipes:
            self._hand_over(name)

    def _hand_over(self, name: str) -> None:
        with suppress(OSError):  # it was killed: the next one is handed all
            socket.send_fds(self._control, [name.encode()], [self._pipes[name]])


class LogWriter:
    """The writer itself, which is told of pipes by `control`."""

    def __init__(self, control: socket.socket, folder: Path, most: int) -> None:
        self._control, self._folder, self._most = control, folder, most
        self._logs: dict[str, RotatedLog] = {}
        self._pipes: dict[int, RotatedLog] = {}
        self._poll = select.epoll()
        self._poll.register(control, select.EPOLLIN)
        self._is_told = True

    def run(self) -> None:
        """Write until nobody tells of another pipe and nobody writes any more."""
        while self._is_told or self._pipes:
            for descriptor, _ in self._poll.poll():
                if descriptor in self._pipes:
                    self._drain(descriptor)
                elif descriptor == self._control.fileno():
                    self._listen()

    def _listen(self) -> None:
        try:
            told, descriptors, _, _ = socket.recv_fds(self._control, _NAME_BYTES, 1)
        except ConnectionResetError:
            told, descriptors = b"", []
        if not told:
            self._poll.unregister(self._control)
            self._is_told = False
        elif descriptors:
            self._add(told.decode(), descriptors[0])
        else:
            self._settle()

    def _add(self, name: str, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        if name not in self._logs:
            self._logs[name] = RotatedLog(self._folder / f"{name}.log", self._most)
        self._pipes[descriptor] = self._logs[name]
        self._poll.register(descriptor, select.EPOLLIN)

    def _settle(self) -> None:
        for descriptor in list(self._pipes):
            self._drain(descriptor)
        with suppress(OSError):  # whoever asked is gone
            self._control.send(_SETTLED)

    def _drain(self, descriptor: int) -> None:
        """Write what is in a pipe, at most what it can hold, so that each has its turn."""
        for _ in range(_PIPE_BYTES // _READ_BYTES):
            try:
                data = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._forget(descriptor)
                return
            with suppress(OSError):  # no room on the disk: nobody shall stand still for a log
                self._pipes[descriptor].write(data)

    def _forget(self, descriptor: int) -> None:
        """Drop a pipe into which nobody can write any more."""
        self._poll.unregister(descriptor)
        del self._pipes[descriptor]
        os.close(descriptor)


def main() -> None:
    """Write logs: a descriptor of the control, a folder, the bytes of a file."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends after all who write
    control, folder, most = sys.argv[1:]
    LogWriter(socket.socket(fileno=int(control)), Path(folder), int(most)).run()


if __name__ == "__main__":
    main()
