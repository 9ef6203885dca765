"""The first process of a cell: builds the walls, starts the task, reaps, reports, ends everything.

It is forked from the warden and execs nothing.  At level 2 it is process 1 of the task's own pid
namespace.  Below, it is a subreaper: whatever the task leaves behind becomes its child.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from gridbot_client.walls import kernel, landlock, probes, seccomp, tree, views
from gridbot_client.walls.cells import NAMESPACES, PROCESS, Cell

TERMINATE, END = b"T", b"K"  # the client's words: SIGTERM to the task's group; end everything
NOBODY = 65534
_OUT_OF_MEMORY_SCORE = b"500"  # the kernel takes the task rather than the client
_CONTROL, _FIRST_STREAM = 3, 4  # descriptors
_COUNT_SECONDS = 1.0  # for which the number of a user's threads is believed


class _Failed(Exception):
    """A step of starting failed; says which."""


def live(cell: Cell, control: int, streams: Sequence[int], groups: Sequence[int]) -> NoReturn:
    """Body of the process; `groups` are the cgroup.procs files that the task enters."""
    try:
        _arrange([control, *streams, *groups])
        channel = socket.socket(fileno=_CONTROL)
        count = len(streams)
        streams = range(_FIRST_STREAM, _FIRST_STREAM + count)
        groups = range(_FIRST_STREAM + count, _FIRST_STREAM + count + len(groups))
        _Life(cell, channel, streams, groups).run()
    finally:
        os._exit(1)


def _arrange(kept: Sequence[int]) -> None:
    """Move descriptors to _CONTROL and after, in this order, and close all others."""
    high = [os.dup2(descriptor, 200 + at, inheritable=False) for at, descriptor in enumerate(kept)]
    for at, descriptor in enumerate(high):
        os.dup2(descriptor, _CONTROL + at, inheritable=False)
    os.closerange(_CONTROL + len(kept), resource.getrlimit(resource.RLIMIT_NOFILE)[1])


class _Life:
    def __init__(
        self, cell: Cell, channel: socket.socket, streams: Sequence[int], groups: Sequence[int]
    ) -> None:
        self._cell = cell
        self._channel = channel
        self._streams = streams
        self._groups = groups
        self._task = 0  # its pid, here
        self._status: int | None = None
        self._cpu_seconds = 0.0

    def run(self) -> None:
        try:
            outer, woken = self._prepare()
            self._task = self._start()
        except Exception as error:  # of whatever kind: the client is to hear of it
            code = error.errno if isinstance(error, OSError) else 0
            self._tell({"error": str(error), "errno": code})
            os._exit(0)
        self._tell({"started": outer})
        self._watch(woken)
        self._end_all()
        self._tell({"ended": self._status, "cpu_seconds": self._cpu_seconds})
        os._exit(0)

    def _prepare(self) -> tuple[int, int]:
        """Build the walls; return this process's pid outside, and a descriptor for signals."""
        os.setsid()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        outer = int(os.readlink("/proc/self"))
        with suppress(OSError), open("/proc/self/oom_score_adj", "wb") as score:
            score.write(_OUT_OF_MEMORY_SCORE)
        woken, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        if self._cell.level >= NAMESPACES:
            views.build(self._cell)
            if self._cell.is_stranger:
                socket.sethostname("gridbot")
            if not self._cell.network:
                kernel.raise_loopback()
            # Neither is the task to read this process, which holds capabilities.
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        return outer, woken

    def _start(self) -> int:
        """Fork the task; return its pid once it has become its program.  Raises _Failed."""
        failure, tells = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            _become(self._cell, self._streams, self._groups, tells)
        os.close(tells)
        said = b""
        while part := os.read(failure, 4096):
            said += part
        os.close(failure)
        if said:
            code, _, text = said.decode(errors="replace").partition(" ")
            raise OSError(int(code), text) if int(code) else _Failed(text)
        return pid

    def _watch(self, woken: int) -> None:
        """Wait until the task ends, or the client wants its end or is gone."""
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        poll.register(self._channel, select.POLLIN)
        while self._status is None:
            for descriptor, _ in poll.poll():
                if descriptor == woken:
                    os.read(woken, 4096)
                    self._reap()
                elif self._is_told_to_end():
                    return

    def _is_told_to_end(self) -> bool:
        try:
            word = self._channel.recv(16)
        except OSError:
            return True
        if word == TERMINATE and self._status is None:
            with suppress(OSError):
                os.killpg(self._task, signal.SIGTERM)
        return word != TERMINATE

    def _reap(self) -> None:
        """Reap what is dead, and count its CPU time."""
        with suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                self._count(pid, status, usage)

    def _count(self, pid: int, status: int, usage: resource.struct_rusage) -> None:
        self._cpu_seconds += usage.ru_utime + usage.ru_stime
        if pid == self._task:
            self._status = status

    def _end_all(self) -> None:
        if self._cell.level < NAMESPACES:
            with suppress(OSError):
                os.killpg(self._task, signal.SIGKILL)
            self._reap()
            tree.end_descendants(self._reap)
            return
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        with suppress(ChildProcessError):
            while True:
                self._count(*os.wait4(-1, 0))

    def _tell(self, said: dict[str, object]) -> None:
        with suppress(OSError):  # the client is gone
            self._channel.send(json.dumps(said).encode())


# --- the task, between fork and exec


def _become(cell: Cell, streams: Sequence[int], groups: Sequence[int], failure: int) -> NoReturn:
    """Put on the last restrictions and exec the program; tell a failure."""
    try:
        _enter(cell, streams, groups)
        if cell.canaries is not None:
            probes.attack(cell.canaries)
        os.execvpe(cell.argv[0], cell.argv, cell.env)  # noqa: S606
    except OSError as error:
        _say(failure, error.errno or 0, error.strerror or str(error))
    except Exception as error:
        _say(failure, 0, f"{type(error).__name__}: {error}")
    finally:
        os._exit(127)


def _say(failure: int, code: int, text: str) -> None:
    os.write(failure, f"{code} {text}".encode()[:4000])


def _enter(cell: Cell, streams: Sequence[int], groups: Sequence[int]) -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    for group in groups:
        os.write(group, b"0")
    os.chdir(cell.work)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    for target, stream in enumerate(streams, 1):
        os.dup2(stream, target)
    _limit(cell)
    if cell.level >= PROCESS:
        _restrict(cell)
    # What the failure pipe and others have as descriptors is closed by the exec.


def _limit(cell: Cell) -> None:
    limits = cell.limits
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    if cell.level < PROCESS:
        return
    _lower(resource.RLIMIT_DATA, limits.data_bytes)
    _lower(resource.RLIMIT_NOFILE, limits.open_files)
    _lower(resource.RLIMIT_MSGQUEUE, 0)
    _lower(resource.RLIMIT_RTPRIO, 0)
    _lower(resource.RLIMIT_NPROC, limits.processes + _other_threads(cell))


def _lower(kind: int, value: int) -> None:
    """Set a limit for good, never above the one that holds."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def _other_threads(cell: Cell) -> int:
    """Threads that count towards RLIMIT_NPROC beside the task's.

    In a user namespace of its own that is the first process alone, else all of the user's.
    """
    if cell.level >= NAMESPACES:
        return 2
    return _threads_of_user(int(time.monotonic() / _COUNT_SECONDS))


@functools.lru_cache(maxsize=1)
def _threads_of_user(_: int) -> int:
    user, count = os.getuid(), 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == user:
                count += os.stat(f"/proc/{name}/task").st_nlink - 2
    return count


def prepare(cell: Cell) -> None:
    """Compute what is the same for many cells, for the processes that are forked afterwards."""
    if cell.level >= NAMESPACES:
        views.system()
    if cell.level >= PROCESS:
        _filter(cell)
        _other_threads(cell)


def _filter(cell: Cell) -> bytes:
    has_namespaces = cell.level >= NAMESPACES
    inet = cell.network or has_namespaces
    return seccomp.program(
        seccomp.families(inet=inet, unix=inet), namespaces=has_namespaces,
        stranger=cell.is_stranger, landlock=landlock.version(),
    )  # fmt: skip


def _restrict(cell: Cell) -> None:
    has_namespaces = cell.level >= NAMESPACES
    kernel.bound_capabilities()
    if has_namespaces and cell.is_stranger and os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    abi = landlock.version()
    if abi:
        landlock.restrict(views.rules(cell, (1, 2)), abi, network=cell.network or has_namespaces)
    seccomp.install(_filter(cell))
