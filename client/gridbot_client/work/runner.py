"""Runs one replica's process in its slot within its limits, and kills all its descendants."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import psutil

from gridbot_client.pilot.behaviour import LOW_CPU
from gridbot_client.protocol.messages import Resources
from gridbot_client.walls.handle import NotExecutable
from gridbot_client.work import processes, progress, trees
from gridbot_client.work.confinement import (
    Confinement,
    KeptCell,
    ShownFolder,
    Task,
    TaskEnd,
    TaskOrder,
    most_processes,
)
from gridbot_client.work.containers import CONTAINER_FAILED, Container, ContainerOrder
from gridbot_client.work.cpu_share import CpuShare
from gridbot_client.work.holdings import Holdings
from gridbot_client.work.idleness import Idleness
from gridbot_client.work.processes import SLOT_VARIABLE, Census, Family
from gridbot_client.work.residents import ResidentJob
from gridbot_client.work.slots import ReplicaSlot
from gridbot_client.work.suspension import SuspendedTime, Suspension

WATCH_SECONDS = 0.5  # how often memory is looked at
DISK_WATCH_SECONDS = 5.0  # at most, between two looks at the disk
DISK_SHARE = 0.02  # of the time may be spent on these
# Reasons that say nothing of the job: this machine failed it.
NOT_STARTED, LOST = "not_started", "task_lost"
STOPPED = "stopped"
EXIT_NONZERO = "exit_nonzero"
_LEAST_FILES, _FILES_PER_MB = 10_000, 16
_MOST_HIDDEN = 2  # looks in a row at which a container may hide what it has open
GRACE_SECONDS = 2.0  # between the polite signal and the other one
_USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"
_KEPT_VARIABLES = ("PATH", "LANG", "TZ")


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """End of a process: `reason` is a reason code, empty if it exited with 0 within its limits."""

    reason: str
    exit_code: int | None = None
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    detail: str = ""  # for the replica's stderr: what the system said


@dataclass(frozen=True, slots=True)
class ReplicaProgram:
    """What a replica runs: its arguments, variables beside the usual ones, and standard input."""

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""  # name of a file in the slot; empty: nothing to read
    shown: Sequence[ShownFolder] = ()  # folders that it sees beside its slot
    path: Sequence[Path] = ()  # where its programs are looked for first
    container: Container | None = None  # in which it runs
    granted: Mapping[str, str] = field(default_factory=dict)  # variables that no BOT may set

    def seeing(
        self, shown: Sequence[ShownFolder], path: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
    ) -> ReplicaProgram:  # fmt: skip
        """The program with further folders; its own variables go before these."""
        variables = {**(environment or {}), **self.environment}
        return replace(self, shown=shown, path=path, environment=variables)


class Stop:
    """Request to stop one replica: its thread, and what runs it."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._call: Callable[[], None] | None = None

    @property
    def is_asked(self) -> bool:
        """True once `ask` was called."""
        return self._event.is_set()

    def ask(self) -> None:
        """Request the stop; the task gets SIGTERM, and its thread does the rest.  Idempotent."""
        with self._lock:
            if not self._event.is_set() and self._call is not None:
                self._call()
            self._event.set()

    def wait(self, seconds: float) -> bool:
        """Sleep until the stop is requested, at most `seconds`; True if it is requested."""
        return self._event.wait(seconds)

    def calls(self, call: Callable[[], None] | None) -> None:
        """Set what to call at the request, at once if it was made; None once all is over."""
        with self._lock:
            self._call = call
            if call is not None and self._event.is_set():
                call()


def environment(
    slot: ReplicaSlot, own: Mapping[str, str], asked: Mapping[str, str],
    first: Sequence[Path] = (), granted: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:  # fmt: skip
    """Environment of a replica: the variables listed here, and those that its BOT asks for.

    The BOT's are for its own program: nothing of the client's starts with them.  They go before
    the usual ones, but not before the client's, whose names no manifest may use.  Programs are
    looked for in the folders `first`.  Nor does a BOT replace what the replica is `granted`.
    """
    kept = {name: own[name] for name in _KEPT_VARIABLES if name in own}
    found = {
        "PATH": _USUAL_PATH,
        **kept,
        "HOME": str(slot.work),
        "TMPDIR": str(slot.work / "tmp"),
        **asked,
        **granted,
        "GRIDBOT_JOB": str(slot.id.seq),
        "GRIDBOT_ATTEMPT": str(slot.id.replica),
        "GRIDBOT_PYTHON": sys.executable,
        "GRIDBOT_BOT": str(slot.id.bot),
        "GRIDBOT_SEQ": str(slot.id.seq),
        "GRIDBOT_REPLICA": str(slot.id.replica),
        progress.VARIABLE: str(progress.path_in(slot)),
        SLOT_VARIABLE: str(slot.path),
    }
    found["PATH"] = os.pathsep.join([*map(str, first), found["PATH"]])
    return found


class Runs(Protocol):
    """Interface: runs programs in slots, here or on another machine that shares the folder."""

    @property
    def confinement(self) -> Confinement:
        """How programs are started."""

    def run(
        self, program: ReplicaProgram, slot: ReplicaSlot, limits: Resources, stop: Stop,
        started: Callable[[int], None], *, is_stranger: bool, wants_network: bool = False,
        kept: KeptCell | None = None, job: ResidentJob | None = None,
        grace_seconds: float = GRACE_SECONDS,
    ) -> ProcessEnd:  # fmt: skip
        """Run a program to its end; see `Runner.run`."""


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs replicas one way; safe to use from many threads."""

    confinement: Confinement
    census: Census
    idleness: Callable[[], Idleness] | None = None  # watches one replica; None: it may be idle
    suspension: Suspension = field(default_factory=Suspension)

    def run(
        self, program: ReplicaProgram, slot: ReplicaSlot, limits: Resources, stop: Stop,
        started: Callable[[int], None], *, is_stranger: bool, wants_network: bool = False,
        kept: KeptCell | None = None, job: ResidentJob | None = None,
        grace_seconds: float = GRACE_SECONDS,
    ) -> ProcessEnd:  # fmt: skip
        """Run a program to its end; `started` gets the pid of a task that may outlive us.

        One that is to stop gets `grace_seconds` between the polite signal and the other one.

        With `job`, the program stays in the slot, and its answer to the job is the end.

        A container that its runtime failed to start is tried once more: Podman, which cleans up
        behind a client that was killed, may end what another of its processes is joining.  Then
        the runtime is asked to say what fails.
        """
        attempt = partial(
            self._run_once, program, slot, limits, stop, started,
            is_stranger=is_stranger, wants_network=wants_network, kept=kept, job=job,
            grace_seconds=grace_seconds,
        )  # fmt: skip
        end = attempt()
        if end.reason != CONTAINER_FAILED or stop.is_asked:
            return end
        return attempt(failed_to_start=True)

    def _run_once(
        self, program: ReplicaProgram, slot: ReplicaSlot, limits: Resources, stop: Stop,
        started: Callable[[int], None], *, is_stranger: bool, wants_network: bool,
        kept: KeptCell | None, job: ResidentJob | None, grace_seconds: float,
        failed_to_start: bool = False,
    ) -> ProcessEnd:  # fmt: skip
        begun = time.monotonic()
        order = _order(
            program, slot, limits, is_stranger=is_stranger, failed_to_start=failed_to_start
        )
        order = replace(order, wants_network=wants_network, kept=kept, job=job)
        try:
            task = self.confinement.start(order)
        except NotExecutable as error:
            name = program.argv[0]
            return ProcessEnd("not_executable", detail=f"cannot execute {name!r}: {error}\n")
        except OSError as error:
            return ProcessEnd(NOT_STARTED, detail=f"the task could not be started: {error}")
        reason, suspended = "", SuspendedTime(task, self.suspension)
        share = CpuShare(task, limits.cpus)
        try:
            stop.calls(task.terminate)
            if not task.is_sealed:
                started(task.pid)
            reason = self._watch(task, slot, limits, stop, begun, suspended, share)
            share.end()
            suspended.end(time.monotonic())
            if reason == STOPPED:  # it has been told once, and may be saving what it has
                task.ended_within(grace_seconds)
            elif reason:
                task.terminate()
                task.ended_within(GRACE_SECONDS)
        finally:
            stop.calls(None)
            end = self._finish(task, slot)
            if program.container and (reason or end is None):
                program.container.clear(slot)
        if end is None:
            return ProcessEnd(reason or LOST, detail="the task's first process was killed")
        if not reason:
            reason = _why(end, slot, limits)
        if reason == EXIT_NONZERO and program.container:
            reason = program.container.failure(slot, end.exit_code) or reason
        now = time.monotonic()
        ran = now - begun - suspended.seconds(now)
        return ProcessEnd(reason, end.exit_code, end.cpu_seconds, ran)

    def _watch(
        self, task: Task, slot: ReplicaSlot, limits: Resources, stop: Stop, begun: float,
        suspended: SuspendedTime, share: CpuShare,
    ) -> str:  # fmt: skip
        """Wait until the program ends (returns "") or exceeds a limit (returns its reason code).

        Time for which it was suspended does not count.
        """
        cpu_at, look = begun, _Look(slot, limits, task.is_contained, begun + WATCH_SECONDS)
        idleness = self.idleness() if self.idleness else None
        while True:
            now = time.monotonic()
            left = begun + limits.seconds + suspended.seconds(now) - now
            wait = min(left, share.pause_seconds(now) or WATCH_SECONDS, WATCH_SECONDS)
            if task.ended_within(max(0.0, wait)):
                return ""
            if stop.is_asked:
                return STOPPED
            if suspended.follow(time.monotonic()):
                continue
            if left <= 0:
                return "time_limit"
            if share.follow(time.monotonic()):
                continue
            family = task.family()
            if family.threads > most_processes(limits):
                return "process_limit"
            # Before memory, which takes longer to measure in a process of many mappings.
            if exceeded := look.exceeded(family):
                return exceeded
            if processes.memory_bytes(family.pids, limits.memory_mb << 20) > limits.memory_mb << 20:
                return "memory_limit"
            if not task.is_contained:  # its runtime rules its processors
                used = partial(processes.cpu_seconds, family.pids)
                share.look(time.monotonic(), family.threads, used)
            if idleness and time.monotonic() >= cpu_at:
                if idleness.is_low(time.monotonic(), processes.cpu_seconds(family.pids)):
                    return LOW_CPU
                cpu_at = time.monotonic() + idleness.window_seconds / 10

    def _finish(self, task: Task, slot: ReplicaSlot) -> TaskEnd | None:
        """Kill remaining processes; return the program's end, None if nobody saw it."""
        end = None
        with suppress(OSError):
            end = task.finish()
        if end is None or not task.is_sealed:
            processes.kill_all(lambda: self.census.of_slot(str(slot.path)))
        return end


@dataclass(slots=True)
class _Look:
    """Looks now and then at the disk that a task uses, and at what its processes hold."""

    _slot: ReplicaSlot
    _limits: Resources
    _is_contained: bool
    _next_at: float
    _hidden: int = 0  # looks in a row at which a process hid what it has open

    def exceeded(self, family: Family) -> str:
        """Reason code of a limit that the task exceeds; empty without, and if it is too early.

        A process that hides what it has open counts as one that has too much.
        """
        begun = time.monotonic()
        if begun < self._next_at:
            return ""
        held = Holdings(family.pids, self._limits.memory_mb << 20, self._limits.cpus)
        if held.is_too_much:
            return "memory_limit"
        self._hidden = self._hidden + 1 if held.is_hidden else 0
        if self._hidden > (_MOST_HIDDEN if self._is_contained else 0):
            return "disk_limit"
        if _is_disk_exceeded(self._slot, self._limits, held.deleted_bytes):
            return "disk_limit"
        took = time.monotonic() - begun
        self._next_at = begun + min(DISK_WATCH_SECONDS, max(WATCH_SECONDS, took / DISK_SHARE))
        return ""


def _order(
    program: ReplicaProgram, slot: ReplicaSlot, limits: Resources, *, is_stranger: bool,
    failed_to_start: bool,
) -> TaskOrder:  # fmt: skip
    argv = _found(program.argv, slot)
    env = environment(slot, os.environ, program.environment, program.path, program.granted)
    order = TaskOrder(
        argv, env, slot, limits, is_stranger, stdin=program.stdin, shown=program.shown
    )
    if program.container is None:
        return order
    inside = ContainerOrder(
        argv, env, slot, program.shown, bool(program.stdin), failed_to_start=failed_to_start
    )
    outside = {**program.container.environment(inside), SLOT_VARIABLE: env[SLOT_VARIABLE]}
    argv = program.container.command(inside)
    return replace(order, argv=argv, env=outside, is_runtime=True)


def _found(argv: Sequence[str], slot: ReplicaSlot) -> Sequence[str]:
    """Arguments to execute; a file in the slot has priority over one of the same name on PATH."""
    first = argv[0]
    if "/" not in first and (slot.work / first).is_file():
        return [f"./{first}", *argv[1:]]
    return argv


def _why(end: TaskEnd, slot: ReplicaSlot, limits: Resources) -> str:
    """Reason code of an end that `_watch` did not cause; empty for success.

    The disk is measured once more, for files written between two measurements.
    """
    if end.exit_code == -signal.SIGXFSZ or _is_disk_exceeded(slot, limits):
        return "disk_limit"
    if end.is_out_of_memory:
        return "memory_limit"
    if end.exit_code < 0:
        return "signal"
    return EXIT_NONZERO if end.exit_code else ""


def _is_disk_exceeded(slot: ReplicaSlot, limits: Resources, deleted_bytes: int = 0) -> bool:
    """True if a slot, with files deleted but open, takes too much or has too many files."""
    most_files = max(_LEAST_FILES, _FILES_PER_MB * limits.disk_mb)
    return trees.exceeds(slot.path, (limits.disk_mb << 20) - deleted_bytes, most_files)


def forbid_core_dumps() -> None:
    """Disable core dumps of this process, which holds a token, and of its children.

    With a limit of 0 the kernel still starts a machine's collector of crashes; with 1 it does not
    (fs/coredump.c), and no core is as small.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))


def created_at(pid: int) -> float:
    """Start time of a process; 0 if it has ended."""
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return 0.0
