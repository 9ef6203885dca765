"""Runs one replica's process in its slot, within its limits, and leaves nothing behind."""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from gridbot_client.pilot.behaviour import LOW_CPU
from gridbot_client.protocol.messages import Resources
from gridbot_client.work import processes
from gridbot_client.work.idleness import Idleness
from gridbot_client.work.processes import SLOT_VARIABLE, Census
from gridbot_client.work.slots import Slot

WATCH_SECONDS = 0.5  # how often memory is looked at
DISK_WATCH_SECONDS = 5.0
GRACE_SECONDS = 2.0  # between the polite signal and the other one
_USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"
_KEPT_VARIABLES = ("PATH", "LANG", "TZ")


class Confinement(Protocol):
    """Starts a program in a slot.

    The process leads a session of its own, runs in `slot.work`, reads nothing and writes to
    `slot.stdout` and `slot.stderr`.  Raises OSError when the program cannot be executed.
    """

    def __call__(
        self, argv: Sequence[str], env: Mapping[str, str], slot: Slot
    ) -> subprocess.Popen[bytes]:
        """Start the program."""


def plain(argv: Sequence[str], env: Mapping[str, str], slot: Slot) -> subprocess.Popen[bytes]:
    """The confinement of trusted programs: a session, clean environment and limits, no walls."""
    with slot.stdout.open("wb") as stdout, slot.stderr.open("wb") as stderr:
        return subprocess.Popen(
            list(argv),
            cwd=slot.work,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: `reason` is empty when it exited with 0 within its limits."""

    reason: str
    exit_code: int | None = None
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    detail: str = ""  # for the replica's stderr: what the system said


class Stop:
    """Asks the thread of one replica to end early, and its process with it."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._leader: int | None = None

    @property
    def is_asked(self) -> bool:
        """Whether someone asked."""
        return self._event.is_set()

    def ask(self) -> None:
        """Ask once; the process hears of it politely, its thread sees to the rest."""
        with self._lock:
            if not self._event.is_set() and self._leader is not None:
                processes.kill_group(self._leader, signal.SIGTERM)
            self._event.set()

    def wait(self, seconds: float) -> bool:
        """Sleep, unless asked; whether someone asked."""
        return self._event.wait(seconds)

    def leads(self, pid: int | None) -> None:
        """Tell which process group to end; None once it may be another's number."""
        with self._lock:
            self._leader = pid
            if pid is not None and self._event.is_set():
                processes.kill_group(pid, signal.SIGTERM)


def environment(slot: Slot, own: Mapping[str, str]) -> dict[str, str]:
    """The environment of a replica: nothing of the client's but what is listed here."""
    kept = {name: own[name] for name in _KEPT_VARIABLES if name in own}
    return {
        "PATH": _USUAL_PATH,
        **kept,
        "HOME": str(slot.work),
        "TMPDIR": str(slot.work / "tmp"),
        "GRIDBOT_BOT": str(slot.id.bot),
        "GRIDBOT_SEQ": str(slot.id.seq),
        "GRIDBOT_REPLICA": str(slot.id.replica),
        SLOT_VARIABLE: str(slot.path),
    }


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs replicas one way; safe to use from many threads."""

    confine: Confinement
    census: Census
    idleness: Callable[[], Idleness] | None = None  # watches one replica; None: it may be idle

    def run(
        self, argv: Sequence[str], slot: Slot, limits: Resources, stop: Stop,
        started: Callable[[int], None],
    ) -> Ended:  # fmt: skip
        """Run a program to its end; `started` gets the pid of its group's leader."""
        begun = time.monotonic()
        try:
            process = _start(self.confine, argv, slot)
        except (OSError, ValueError) as error:
            return Ended("not_executable", detail=f"cannot execute {argv[0]!r}: {error}\n")
        try:
            _limit(process.pid, limits)
            stop.leads(process.pid)
            started(process.pid)
            reason = self._watch(process.pid, slot, limits, stop, begun)
            if reason:
                _end_politely(process.pid)
        finally:
            exit_code, cpu_seconds = self._finish(process, slot, stop)
        if not reason:
            reason = _why(exit_code, slot, limits)
        return Ended(reason, exit_code, cpu_seconds, time.monotonic() - begun)

    def _watch(self, pid: int, slot: Slot, limits: Resources, stop: Stop, begun: float) -> str:
        """Wait until the leader ends (gives "") or breaks a limit (gives its name)."""
        disk_at, cpu_at = begun + WATCH_SECONDS, begun
        idleness = self.idleness() if self.idleness else None
        with _Waiter(pid) as waiter:
            while True:
                left = begun + limits.seconds - time.monotonic()
                if waiter.ended_within(max(0.0, min(left, WATCH_SECONDS))):
                    return ""
                if stop.is_asked:
                    return "stopped"
                if left <= 0:
                    return "time_limit"
                if self._is_too_big(pid, slot, limits.memory_mb << 20):
                    return "memory_limit"
                if idleness and time.monotonic() >= cpu_at:
                    if idleness.is_low(time.monotonic(), self._cpu_seconds(pid, slot)):
                        return LOW_CPU
                    cpu_at = time.monotonic() + idleness.window_seconds / 10
                if time.monotonic() >= disk_at:
                    if _used_bytes(slot.path) > limits.disk_mb << 20:
                        return "disk_limit"
                    disk_at = time.monotonic() + DISK_WATCH_SECONDS

    def _is_too_big(self, leader: int, slot: Slot, limit: int) -> bool:
        return processes.memory_bytes(self._family(leader, slot), limit) > limit

    def _cpu_seconds(self, leader: int, slot: Slot) -> float:
        return processes.cpu_seconds(self._family(leader, slot))

    def _family(self, leader: int, slot: Slot) -> set[int]:
        return {leader, *(process.pid for process in self.census.of_slot(str(slot.path)))}

    def _finish(
        self, process: subprocess.Popen[bytes], slot: Slot, stop: Stop
    ) -> tuple[int, float]:
        """End whatever is left, take the leader's exit code and the CPU time of its family.

        The group is killed before its leader is reaped: until then the number is its own.
        """
        processes.kill_group(process.pid)
        stop.leads(None)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        processes.kill_all(lambda: self.census.of_slot(str(slot.path)))
        return process.returncode, usage.ru_utime + usage.ru_stime


class _Waiter:
    """Waits for a child's end without reaping it."""

    def __init__(self, pid: int) -> None:
        self._descriptor = os.pidfd_open(pid)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)

    def __enter__(self) -> _Waiter:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def ended_within(self, seconds: float) -> bool:
        return bool(self._poll.poll(seconds * 1000))


def _start(confine: Confinement, argv: Sequence[str], slot: Slot) -> subprocess.Popen[bytes]:
    """Start the program; a file of the slot goes before one of the same name on PATH."""
    first = argv[0]
    if "/" not in first and (slot.work / first).is_file():
        argv = [f"./{first}", *argv[1:]]
    for attempt in range(50):
        try:
            return confine(argv, environment(slot, os.environ), slot)
        except OSError as error:
            # A child that another thread forked still holds the file as we wrote it.
            if error.errno != errno.ETXTBSY or attempt == 49:
                raise
            time.sleep(0.01)
    raise AssertionError("unreachable")


def _limit(pid: int, limits: Resources) -> None:
    """Bound the size of each file; the slot as a whole is measured."""
    with suppress(ProcessLookupError, PermissionError):
        size = limits.disk_mb << 20
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, size))


def _end_politely(pid: int) -> None:
    processes.kill_group(pid, signal.SIGTERM)
    with _Waiter(pid) as waiter:
        waiter.ended_within(GRACE_SECONDS)


def _why(exit_code: int, slot: Slot, limits: Resources) -> str:
    """The reason code of an end that no watch brought about; empty for a good one.

    The disk is measured once more, for what was written between two looks and by children
    that were there before the limit on file sizes was.
    """
    if exit_code == -signal.SIGXFSZ or _used_bytes(slot.path) > limits.disk_mb << 20:
        return "disk_limit"
    if exit_code < 0:
        return "signal"
    return "exit_nonzero" if exit_code else ""


def _used_bytes(path: Path) -> int:
    """Disk that a tree takes, holes not counted."""
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(directory, name)).st_blocks * 512
    return total


def forbid_core_dumps() -> None:
    """Let neither this process, which knows a token, nor its children dump core."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def created_at(pid: int) -> float:
    """The start time of a process, 0 when it is gone already."""
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return 0.0
