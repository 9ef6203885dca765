"""The warden: a small process that starts each task behind its walls.

Theory of operation.  Walls are built by a process around itself, between fork and exec.  The
client cannot do that: it has threads, and after a fork in such a process only exec is safe.  A new
interpreter per task would cost some 20 ms.  So the client starts one warden, a bare interpreter
with a single thread and few modules, and each task costs one fork of it.

    client ──cell──► warden ──clone──► first process ──spawn──► task
      └───────────── control socket ────────┘

* The client sends a byte with descriptors: a cell as a file, the task's control socket, stdout,
  stderr, its channel if it has one, and the cgroups to enter.  All that is said about this task
  goes over the control socket.
* The warden clones the first process (`inside.py`) into the namespaces of the cell's level, and
  writes which users exist there.  Who is root outside is nobody inside.
* The first process mounts the task's view (`views.py`), gives up capabilities, enters Landlock and
  the filter of system calls, spawns the task, and stays to reap.  No step of this can be undone.
  With the task's exec nothing of the client's is open in it.  At level 1 the task takes these steps
  itself, after a fork.
* When the task ends, or the client says so or is gone, the first process kills all that is left
  and says how it ended.  When the control socket closes, nothing of the task is left.

Whoever dies takes down what is below: the kernel kills the first process with its warden, and all
of a pid namespace with its first process.  A first process that outlives a killed client reads the
end of its control socket.  Below level 2 a hostile task may kill its first process; then the
warden, a subreaper as well, ends the strays.
"""

from __future__ import annotations

import array
import gc
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress

from gridbot_client.walls import inside, kernel, tree
from gridbot_client.walls.cells import NAMESPACES, Cell

_MOST_DESCRIPTORS = 16
_PATIENCE_SECONDS = 10.0
_OUT_OF_MEMORY_SCORE = "500"  # the kernel takes a task rather than the client
_ISOLATED = (
    kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID | kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
)  # fmt: skip


def main(descriptor: int) -> None:
    """Serve the client at the other end of a socket until it closes."""
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    with suppress(OSError):
        _write("self", "oom_score_adj", _OUT_OF_MEMORY_SCORE)
    gc.disable()  # a collection in a fork would copy all memory, and there are no cycles
    _Warden(socket.socket(fileno=descriptor)).serve()


class _Warden:
    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._first: set[int] = set()  # the first processes of living cells
        self._woken, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._own = (client.fileno(), self._woken, wakes)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client ends its tasks itself

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        poll.register(self._client, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._woken:
                    os.read(self._woken, 4096)
                    self._reap()
                elif not self._take():
                    return self._leave()

    def _take(self) -> bool:
        """Start the task of one message; False if the client is gone."""
        try:
            descriptors = self._receive()
        except OSError:
            return False
        if not descriptors:
            return False
        try:
            self._start(*descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def _receive(self) -> list[int]:
        size = array.array("i").itemsize
        space = socket.CMSG_LEN(_MOST_DESCRIPTORS * size)
        _, parts, _, _ = self._client.recvmsg(16, space, socket.MSG_CMSG_CLOEXEC)
        found = array.array("i")
        for level, kind, data in parts:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                found.frombytes(data[: len(data) - len(data) % size])
        return list(found)

    def _start(self, order: int, control: int, *others: int) -> None:
        try:
            cell = Cell.decode(os.pread(order, os.fstat(order).st_size, 0))
            inside.prepare(cell)
            count = 3 if cell.has_channel else 2
            self._first.add(self._clone(cell, control, others[:count], others[count:]))
        except (OSError, ValueError, TypeError, KeyError, EOFError) as error:
            with suppress(OSError):
                os.write(control, inside.failure(error).encode(errors="replace"))

    def _clone(
        self, cell: Cell, control: int, streams: tuple[int, ...], groups: tuple[int, ...]
    ) -> int:
        if cell.level < NAMESPACES:
            pid = os.fork()
            if pid == 0:
                self._let_go()
                inside.live(cell, control, streams, groups)
            return pid
        ready, go = os.pipe2(os.O_CLOEXEC)
        pid = kernel.clone(_ISOLATED | (0 if cell.network else kernel.CLONE_NEWNET))
        if pid == 0:
            os.close(go)
            if os.read(ready, 1) != b"1":
                os._exit(1)
            os.close(ready)
            self._let_go()
            inside.live(cell, control, streams, groups)
        os.close(ready)
        try:
            _write_users(pid, cell)
            os.write(go, b"1")
        except OSError:
            os.kill(pid, signal.SIGKILL)
            self._first.add(pid)
            raise
        finally:
            os.close(go)
        return pid

    def _let_go(self) -> None:
        """Close, in a fork, what is the warden's; the rest is closed by the task's exec."""
        for descriptor in self._own:
            os.close(descriptor)

    def _reap(self) -> None:
        """Reap first processes, and strays of those that were killed."""
        has_strays = False
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                has_strays |= pid not in self._first or status != 0
                self._first.discard(pid)
        if has_strays:
            tree.end_descendants(self._reap_strays, self._first)

    def _reap_strays(self) -> None:
        with suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._first.discard(pid)

    def _leave(self) -> None:
        """Let the first processes end their tasks, for the client is gone; then end the rest."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while self._first and time.monotonic() < until:
            with suppress(InterruptedError):
                select.select([self._woken], [], [], 0.5)
            with suppress(BlockingIOError):
                os.read(self._woken, 4096)
            self._reap()
        tree.end_descendants(self._reap_strays)


def _write_users(pid: int, cell: Cell) -> None:
    """Say which users exist in the namespace of a cell.

    For a client of an ordinary user it is that user alone.  Under root a stranger's task is nobody
    inside and outside; the first process needs root beside, which owns the slot.  One's own task
    under root keeps its access to root's files, and looks like nobody.
    """
    user, group = os.geteuid(), os.getegid()
    users = groups = ""
    if user:
        _write(pid, "setgroups", "deny")
        users, groups = f"{user} {user} 1", f"{group} {group} 1"
    elif cell.is_stranger:
        users = groups = f"0 0 1\n{inside.NOBODY} {inside.NOBODY} 1"
    else:
        _write(pid, "setgroups", "deny")
        users = groups = f"{inside.NOBODY} 0 1"
    _write(pid, "uid_map", users)
    _write(pid, "gid_map", groups)


def _write(pid: int | str, name: str, text: str) -> None:
    file = os.open(f"/proc/{pid}/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


if __name__ == "__main__":
    main(int(sys.argv[1]))
