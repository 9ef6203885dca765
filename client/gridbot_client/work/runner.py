"""Runs one replica's process in its slot within its limits, and kills all its descendants."""

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
from gridbot_client.work.slots import ReplicaSlot

WATCH_SECONDS = 0.5  # how often memory is looked at
DISK_WATCH_SECONDS = 5.0
GRACE_SECONDS = 2.0  # between the polite signal and the other one
_USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"
_KEPT_VARIABLES = ("PATH", "LANG", "TZ")


class Confinement(Protocol):
    """Interface: starts a program in a slot.

    The process leads a session of its own, runs in `slot.work`, has no stdin and writes to
    `slot.stdout` and `slot.stderr`.  Raises OSError if the program cannot be executed.
    """

    def __call__(
        self, argv: Sequence[str], env: Mapping[str, str], slot: ReplicaSlot
    ) -> subprocess.Popen[bytes]:
        """Start the program."""


def plain(
    argv: Sequence[str], env: Mapping[str, str], slot: ReplicaSlot
) -> subprocess.Popen[bytes]:
    """Confinement of trusted programs: own session, clean environment and limits, no sandbox."""
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
class ProcessEnd:
    """End of a process: `reason` is a reason code, empty if it exited with 0 within its limits."""

    reason: str
    exit_code: int | None = None
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    detail: str = ""  # for the replica's stderr: what the system said


class Stop:
    """Request to stop one replica: its thread and its process."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._leader: int | None = None

    @property
    def is_asked(self) -> bool:
        """True once `ask` was called."""
        return self._event.is_set()

    def ask(self) -> None:
        """Request the stop; the process gets SIGTERM, and its thread does the rest.  Idempotent."""
        with self._lock:
            if not self._event.is_set() and self._leader is not None:
                processes.kill_group(self._leader, signal.SIGTERM)
            self._event.set()

    def wait(self, seconds: float) -> bool:
        """Sleep until the stop is requested, at most `seconds`; True if it is requested."""
        return self._event.wait(seconds)

    def leads(self, pid: int | None) -> None:
        """Set the process group to signal; None once its number may be reused."""
        with self._lock:
            self._leader = pid
            if pid is not None and self._event.is_set():
                processes.kill_group(pid, signal.SIGTERM)


def environment(slot: ReplicaSlot, own: Mapping[str, str]) -> dict[str, str]:
    """Environment of a replica: only the variables listed here."""
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
        self, argv: Sequence[str], slot: ReplicaSlot, limits: Resources, stop: Stop,
        started: Callable[[int], None],
    ) -> ProcessEnd:  # fmt: skip
        """Run a program to its end; `started` gets the pid of its process group's leader."""
        begun = time.monotonic()
        try:
            process = _start(self.confine, argv, slot)
        except (OSError, ValueError) as error:
            return ProcessEnd("not_executable", detail=f"cannot execute {argv[0]!r}: {error}\n")
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
        return ProcessEnd(reason, exit_code, cpu_seconds, time.monotonic() - begun)

    def _watch(
        self, pid: int, slot: ReplicaSlot, limits: Resources, stop: Stop, begun: float
    ) -> str:
        """Wait until the leader ends (returns "") or exceeds a limit (returns its reason code)."""
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

    def _is_too_big(self, leader: int, slot: ReplicaSlot, limit: int) -> bool:
        return processes.memory_bytes(self._family(leader, slot), limit) > limit

    def _cpu_seconds(self, leader: int, slot: ReplicaSlot) -> float:
        return processes.cpu_seconds(self._family(leader, slot))

    def _family(self, leader: int, slot: ReplicaSlot) -> set[int]:
        return {leader, *(process.pid for process in self.census.of_slot(str(slot.path)))}

    def _finish(
        self, process: subprocess.Popen[bytes], slot: ReplicaSlot, stop: Stop
    ) -> tuple[int, float]:
        """Kill remaining processes; return the leader's exit code and the CPU time of all.

        The group is killed before its leader is reaped, because until then its number is not
        reused.
        """
        processes.kill_group(process.pid)
        stop.leads(None)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        processes.kill_all(lambda: self.census.of_slot(str(slot.path)))
        return process.returncode, usage.ru_utime + usage.ru_stime


class _Waiter:
    """Waits for the end of a child without reaping it."""

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


def _start(confine: Confinement, argv: Sequence[str], slot: ReplicaSlot) -> subprocess.Popen[bytes]:
    """Start the program; a file in the slot has priority over one of the same name on PATH."""
    first = argv[0]
    if "/" not in first and (slot.work / first).is_file():
        argv = [f"./{first}", *argv[1:]]
    for attempt in range(50):
        try:
            return confine(argv, environment(slot, os.environ), slot)
        except OSError as error:
            # ETXTBSY: a child that another thread forked still has the file open for writing.
            if error.errno != errno.ETXTBSY or attempt == 49:
                raise
            time.sleep(0.01)
    raise AssertionError("unreachable")


def _limit(pid: int, limits: Resources) -> None:
    """Set the limit on the size of one file; the slot's total is measured by `_watch`."""
    with suppress(ProcessLookupError, PermissionError):
        size = limits.disk_mb << 20
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, size))


def _end_politely(pid: int) -> None:
    processes.kill_group(pid, signal.SIGTERM)
    with _Waiter(pid) as waiter:
        waiter.ended_within(GRACE_SECONDS)


def _why(exit_code: int, slot: ReplicaSlot, limits: Resources) -> str:
    """Reason code of an end that `_watch` did not cause; empty for success.

    The disk is measured once more, for files written between two measurements, and by children
    started before the limit on file sizes was set.
    """
    if exit_code == -signal.SIGXFSZ or _used_bytes(slot.path) > limits.disk_mb << 20:
        return "disk_limit"
    if exit_code < 0:
        return "signal"
    return "exit_nonzero" if exit_code else ""


def _used_bytes(path: Path) -> int:
    """Disk space of a tree in bytes, without holes of sparse files."""
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(directory, name)).st_blocks * 512
    return total


def forbid_core_dumps() -> None:
    """Disable core dumps of this process, which holds a token, and of its children."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def created_at(pid: int) -> float:
    """Start time of a process; 0 if it has ended."""
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return 0.0
