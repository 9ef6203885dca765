"""The first process of a cell: builds the walls, starts the task, reaps, reports, ends everything.

It is forked from the warden and execs nothing.  At level 2 it is process 1 of the task's own pid
namespace.  Below, it is a subreaper: whatever the task leaves behind becomes its child.

A fork shares its memory until a page is written, and Python writes wherever it looks.  So what a
first process costs is the number of pages that it touches.  Whatever is the same for many tasks is
computed in the warden (`prepare`), and the task is spawned (as by vfork) and not forked: at level 2
the first process goes behind the same walls before.  At level 1 it must not, for a task in the same
Landlock domain could signal it.

A cell that stays serves one task after another.  Before one begins, all processes of the one before
have been reaped, and nothing of it is in /dev/shm; each gets a standard output of its own; what is
in the task's folder is the client's to clear.  No task can change this process, from which the next
one inherits: limits, priority and processors (`seccomp.py`).  So two tasks of a cell meet only in
what a network namespace keeps.

A program that stays sleeps between two jobs: the client has it stopped, and continued.
"""

from __future__ import annotations

import errno
import functools
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
from gridbot_client.walls.cells import NAMESPACES, PROCESS, Cell, NextTask

# The client's words: SIGTERM to the task's group; end everything; run this program next, with these
# streams; let nothing run for a while.
TERMINATE, END, NEXT = b"T", b"K", b"N"
PAUSE, RESUME = b"P", b"R"
_ASLEEP = {PAUSE: signal.SIGSTOP, RESUME: signal.SIGCONT}
MOST_ORDER_BYTES = 32 << 10
# What this process says, each followed by numbers or a text: see `handle.py`.
STARTED, ENDED = "started", "ended"
REFUSED, FAILED = "refused", "failed"  # the program cannot be executed; this machine could not
NOBODY = 65534
_OF_THE_MACHINE = (
    errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ETXTBSY, errno.EINTR,
)  # fmt: skip
_STREAMS = 2
_SIGNALS_ON_THEIR_WAY = 4096  # of the user; timers count as well
_TCP_BUFFER = b"4096 65536 212992"  # bytes, as net.core.rmem_max of most machines
_COUNT_SECONDS = 1.0  # for which the number of a user's threads is believed


class _NotStarted(Exception):
    """The task did not start; carries the message that says why."""


def live(cell: Cell, control: int, streams: Sequence[int], groups: Sequence[int]) -> NoReturn:
    """Body of the process; `groups` are the cgroup.procs files that the task enters.

    `streams` are the task's stdout and stderr, and its channel if it has one.
    """
    try:
        _Life(cell, control, streams, groups).run()
    finally:
        os._exit(1)


class _Life:
    def __init__(
        self, cell: Cell, control: int, streams: Sequence[int], groups: Sequence[int]
    ) -> None:
        self._cell = cell
        self._control = control
        self._streams, self._channel = streams[:_STREAMS], streams[_STREAMS:]
        self._socket: socket.socket | None = None  # the control socket as an object
        self._groups = groups
        self._task = 0  # its pid, here
        self._status: int | None = None
        self._cpu_seconds = 0.0

    def run(self) -> None:
        try:
            outer, woken = self._prepare()
            self._task = self._start()
            self._follow(outer, woken)
            while self._cell.stays and self._is_given_another():
                self._task = self._spawned()
                self._follow(outer, woken)
        except _NotStarted as error:
            self._tell(str(error))
        except Exception as error:  # of whatever kind: the client is to hear of it
            self._tell(failure(error))
        os._exit(0)

    def _follow(self, outer: str, woken: int) -> None:
        """Follow a task that was started to its end."""
        self._tell(f"{STARTED} {outer}")
        self._watch(woken)
        self._end_all()
        for stream in self._streams:  # a lease or flags that the task has put on it go with it
            os.close(stream)
        # Without a status it was killed, and has much to free before it is gone.
        status = int(signal.SIGKILL) if self._status is None else self._status
        self._tell(f"{ENDED} {status} {self._cpu_seconds}")

    def _is_given_another(self) -> bool:
        """Wait for the next program; False if the cell is to end."""
        if os.listdir("/dev/shm"):  # noqa: S108
            return False
        said = TERMINATE
        while said[:1] in (TERMINATE, END):  # what was said to the task before, which has ended
            said, streams = self._received()
        if said[:1] != NEXT:
            return False
        self._cell = self._cell._replace(**NextTask.decode(said[1:])._asdict())
        self._streams = streams
        self._status, self._cpu_seconds = None, 0.0
        return True

    def _received(self) -> tuple[bytes, Sequence[int]]:
        """Next word of the client's, with descriptors; the word is empty if the client is gone."""
        if self._socket is None:
            self._socket = socket.socket(fileno=self._control)
        said, found, _, _ = socket.recv_fds(
            self._socket, MOST_ORDER_BYTES, _STREAMS, socket.MSG_CMSG_CLOEXEC
        )
        return said, found

    def _prepare(self) -> tuple[str, int]:
        """Build the walls; return this process's pid outside, and a descriptor for signals."""
        os.setsid()
        outer = os.readlink("/proc/self")
        woken, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        if self._cell.level >= NAMESPACES:
            if not self._cell.network:
                _make_network()
            views.build(self._cell)
            if self._cell.is_stranger:
                socket.sethostname("gridbot")
        else:
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        self._guard()
        return outer, woken

    def _start(self) -> int:
        """Start the task; return its pid once it has become its program."""
        cell = self._cell
        if cell.level == PROCESS:
            return self._fork()
        _enter(cell, self._groups)
        if cell.level >= NAMESPACES:
            _drop_rights(cell)
            self._guard()
            _confine(cell, self._streams)
        return self._fork() if cell.canaries is not None else self._spawned()

    def _spawned(self) -> int:
        return _spawn(self._cell, self._streams, self._channel)

    def _guard(self) -> None:
        """Die with the warden, and let no task read this process; a new user id undoes both."""
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)

    def _fork(self) -> int:
        """Fork a task that puts on what this process has not, or attacks canaries."""
        hears, tells = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            _become(self._cell, self._streams, self._groups, tells)
        os.close(tells)
        said = b""
        while part := os.read(hears, 4096):
            said += part
        os.close(hears)
        if said:
            raise _NotStarted(said.decode(errors="replace"))
        return pid

    def _watch(self, woken: int) -> None:
        """Wait until the task ends, or the client wants its end or is gone."""
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        while self._status is None:
            for descriptor, _ in poll.poll():
                if descriptor == woken:
                    os.read(woken, 4096)
                    self._reap()
                elif self._is_told_to_end():
                    return

    def _is_told_to_end(self) -> bool:
        try:
            word = os.read(self._control, 16)
        except OSError:
            return True
        with suppress(OSError):
            if word == TERMINATE and self._status is None:
                os.killpg(self._task, signal.SIGTERM)
            elif word in _ASLEEP and self._cell.level >= NAMESPACES:
                os.kill(-1, _ASLEEP[word])
            elif word in _ASLEEP:
                tree.signal_below(os.getpid(), _ASLEEP[word])
        return word != TERMINATE and word not in _ASLEEP

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

    def _tell(self, said: str) -> None:
        with suppress(OSError):  # the client is gone
            os.write(self._control, said.encode(errors="replace"))


def _make_network() -> None:
    """Bring up a new network, whose connections keep no more than other sockets may."""
    kernel.raise_loopback()
    with suppress(OSError):  # in a container that cannot change the kernel's settings
        for name in ("tcp_rmem", "tcp_wmem"):
            setting = os.open(f"/proc/sys/net/ipv4/{name}", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(setting, _TCP_BUFFER)
            finally:
                os.close(setting)


def failure(error: Exception, word: str = FAILED) -> str:
    """Say why a task did not start, with the number of the error and its text."""
    code, text = 0, str(error)
    if isinstance(error, OSError):
        code, text = error.errno or 0, error.strerror or text
    return f"{word} {code} {text}"[:4000]


def is_machines(error: Exception) -> bool:
    """True if an error of executing a program says nothing of the program."""
    return isinstance(error, OSError) and error.errno in _OF_THE_MACHINE


def _refusal(error: Exception) -> str:
    return failure(error, FAILED if is_machines(error) else REFUSED)


# --- the task, between fork and exec

_DEFAULTS = (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT)


def _spawn(cell: Cell, streams: Sequence[int], channel: Sequence[int]) -> int:
    """Start the program without a copy of this process's memory."""
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]]
    actions = [(os.POSIX_SPAWN_DUP2, descriptor, 0) for descriptor in channel]
    actions = actions or [(os.POSIX_SPAWN_OPEN, 0, cell.stdin, os.O_RDONLY, 0)]
    actions += [(os.POSIX_SPAWN_DUP2, stream, at) for at, stream in enumerate(streams, 1)]
    found: Exception = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in _candidates(cell):
        try:
            return os.posix_spawn(
                path, cell.argv, cell.env, file_actions=actions, setsid=True, setsigdef=_DEFAULTS
            )
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:  # another folder may hold one that can be executed
            found = error
        except (OSError, ValueError) as error:
            found = error
            break
    raise _NotStarted(_refusal(found))


def _candidates(cell: Cell) -> list[str]:
    """Paths to try for a program, as execvp(3) does."""
    name = cell.argv[0]
    if "/" in name:
        return [name]
    return [os.path.join(folder, name) for folder in cell.env.get("PATH", os.defpath).split(":")]


def _become(cell: Cell, streams: Sequence[int], groups: Sequence[int], tells: int) -> NoReturn:
    """Put on the last restrictions and exec the program, or attack; tell a failure."""
    try:
        _put_on(cell, streams, groups)
        if cell.canaries is not None:
            probes.attack(cell.canaries)
        _execute(cell, tells)
    except Exception as error:
        os.write(tells, failure(error).encode(errors="replace"))
    finally:
        os._exit(127)


def _put_on(cell: Cell, streams: Sequence[int], groups: Sequence[int]) -> None:
    signal.set_wakeup_fd(-1)
    for number in _DEFAULTS:
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    os.dup2(os.open(cell.stdin, os.O_RDONLY), 0)
    for target, stream in enumerate(streams, 1):
        os.dup2(stream, target)
    if cell.level == PROCESS:
        _enter(cell, groups)
        _drop_rights(cell)
        _confine(cell, streams)


def _execute(cell: Cell, tells: int) -> None:
    try:
        os.execvpe(cell.argv[0], cell.argv, cell.env)  # noqa: S606
    except (OSError, ValueError) as error:
        os.write(tells, _refusal(error).encode(errors="replace"))


def _enter(cell: Cell, groups: Sequence[int]) -> None:
    for group in groups:
        os.write(group, b"0")
    os.chdir(cell.work)
    _limit(cell)


def _limit(cell: Cell) -> None:
    limits = cell.limits
    _lower(resource.RLIMIT_CORE, 1)  # see `forbid_core_dumps`
    _lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    if cell.level < PROCESS:
        return
    _lower(resource.RLIMIT_DATA, limits.data_bytes)
    _lower(resource.RLIMIT_NOFILE, limits.open_files)
    _lower(resource.RLIMIT_MSGQUEUE, 0)
    _lower(resource.RLIMIT_SIGPENDING, _SIGNALS_ON_THEIR_WAY)
    _lower(resource.RLIMIT_RTPRIO, 0)
    _lower(resource.RLIMIT_NICE, 0)
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
        views.visible_secrets(cell.hidden, cell.reads + cell.writes, cell.is_stranger)
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


def _drop_rights(cell: Cell) -> None:
    kernel.forbid_capabilities()
    if cell.level >= NAMESPACES and cell.is_stranger and os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)


def _confine(cell: Cell, streams: Sequence[int]) -> None:
    abi, has_namespaces = landlock.version(), cell.level >= NAMESPACES
    if abi:
        landlock.restrict(views.rules(cell, streams), abi, network=cell.network or has_namespaces)
    seccomp.install(_filter(cell))
