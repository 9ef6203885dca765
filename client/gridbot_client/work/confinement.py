"""How programs are started: the interface, the walls of this machine, and none at all."""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from gridbot_client.protocol.messages import Resources
from gridbot_client.walls import levels, nobody, tree
from gridbot_client.walls.cells import (
    CGROUP,
    NAMESPACES,
    NONE,
    PROCESS,
    Cell,
    KernelLimits,
    NextTask,
)
from gridbot_client.walls.cgroups import TaskCgroup
from gridbot_client.walls.handle import NotExecutable, WalledTask, Warden, WardenLost
from gridbot_client.walls.inside import is_machines
from gridbot_client.walls.levels import Sandbox
from gridbot_client.walls.views import SHARED
from gridbot_client.work import processes
from gridbot_client.work.processes import Family
from gridbot_client.work.residents import ResidentAnswer, ResidentJob, ResidentProgram
from gridbot_client.work.slots import ReplicaSlot

_OPEN_FILES = 4096
# Beside the memory that the task may use, one process may map that much: stacks of threads, which
# are hardly used, and the reserves of Java and Go.
_SPARE_BYTES, _SPARE_BYTES_PER_CPU = 1 << 30, 32 << 20
_LEAST_SHARED_BYTES = 16 << 20


class ShownFolder(NamedTuple):
    """A folder that is not in the slot, and where a task sees it.

    `target` is in the slot's work folder, or the folder's own path.
    """

    source: Path
    target: Path
    is_writable: bool = False


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """A program to run in a slot."""

    argv: Sequence[str]
    env: Mapping[str, str]
    slot: ReplicaSlot
    resources: Resources
    is_stranger: bool  # it runs because the project signed it, not because of its owner
    wants_network: bool = False
    stdin: str = ""  # name of a file in the slot's work folder
    kept: KeptCell | None = None  # that the task's walls may be, or become
    job: ResidentJob | None = None  # for a program that stays, in a kept cell
    shown: Sequence[ShownFolder] = ()
    is_runtime: bool = False  # of a container, for which it makes walls: the task is what is in it


@dataclass(slots=True)
class KeptCell:
    """Walls that stay for further tasks of one BOT in the same slot; none before the first."""

    task: WalledTask | None = None  # the last one, which is finished unless it is the program's
    group: TaskCgroup | None = None
    program: ResidentProgram | None = None  # that stays in it
    # What the cell has mounted of the slot's work folder, and on it; with their identities.
    folders: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def close(self) -> None:
        """End the cell.  Idempotent."""
        task, group, program = self.task, self.group, self.program
        self.task = self.group = self.program = None
        if program:
            program.close()
        if task:
            task.close()
        if group:
            group.release()


class Task(Protocol):
    """A started program, with all that it starts."""

    @property
    def pid(self) -> int:
        """Process that leads a session; what the task started is below it, if it did not flee."""

    @property
    def is_sealed(self) -> bool:
        """True if the kernel ends all of it with its first process, and that with this one."""

    @property
    def is_contained(self) -> bool:
        """True if it is in a container, whose processes hide what they have while they begin."""

    def family(self) -> Family:
        """Processes of the task that live now."""

    def ended_within(self, seconds: float) -> bool:
        """Wait for the program's end; True if it has ended."""

    def terminate(self) -> None:
        """Ask the program to end.  From any thread."""

    def pause(self) -> None:
        """Let nothing of it run until `resume`; idempotent."""

    def resume(self) -> None:
        """Let it run again."""

    def finish(self) -> TaskEnd:
        """Kill what is left of the task, and say how its program ended.  Raises OSError."""


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """End of a task's program: exit code as subprocess has it, CPU time of all its processes."""

    exit_code: int
    cpu_seconds: float
    is_out_of_memory: bool = False  # the kernel ended it for its memory


class Confinement(Protocol):
    """Interface: starts programs in slots.

    A program runs in `slot.work`, reads its `stdin` or nothing, and writes to `slot.stdout` and
    `slot.stderr`.
    """

    @property
    def keeps_cells(self) -> bool:
        """True if walls can stay for further tasks."""

    def refusal(self, *, is_stranger: bool, least: int = 0) -> str:
        """Why a program is not run here; empty if it is.  `least` is the level that it asks for."""

    def start(self, program: TaskOrder) -> Task:
        """Start a program.

        Raises NotExecutable if that is no program, and OSError for what says nothing of it.
        """


# --- without walls


@dataclass(slots=True)
class _PlainTask:
    process: subprocess.Popen[bytes]
    is_contained: bool = False
    _waiter: int = -1
    _is_reaped: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_sealed(self) -> bool:
        return False

    def family(self) -> Family:
        found = processes.TABLE.below(self.pid, included=True)
        return processes.in_containers(found) if self.is_contained else found

    def ended_within(self, seconds: float) -> bool:
        if self._waiter < 0:
            self._waiter = os.pidfd_open(self.pid)
        return bool(select.select([self._waiter], [], [], seconds)[0])

    def terminate(self) -> None:
        if not self._is_reaped:
            processes.kill_group(self.pid, signal.SIGTERM)

    def pause(self) -> None:
        self._tell(signal.SIGSTOP)

    def resume(self) -> None:
        self._tell(signal.SIGCONT)

    def _tell(self, number: int) -> None:
        if not self._is_reaped:
            processes.kill_group(self.pid, number)
            tree.signal_below(self.pid, number)

    def finish(self) -> TaskEnd:
        """End the group before its leader is reaped: until then its number is not used again."""
        processes.kill_group(self.pid)
        self._is_reaped = True
        _, status, usage = os.wait4(self.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self._waiter >= 0:
            os.close(self._waiter)
        return TaskEnd(self.process.returncode, usage.ru_utime + usage.ru_stime)


@dataclass(frozen=True, slots=True)
class Plain:
    """Own session, clean environment and a limit on file sizes; for one's own work only."""

    is_pilot: bool = False  # all work is one's own

    @property
    def keeps_cells(self) -> bool:
        """Without walls there are none to keep."""
        return False

    def refusal(self, *, is_stranger: bool, least: int = 0) -> str:
        """Refuse strangers' work, and all that asks for walls."""
        if least > NONE:
            return f"the BOT asks for sandbox level {least}, and this machine offers none"
        if is_stranger and not self.is_pilot:
            return "this machine offers no walls for the work of others"
        return ""

    def start(self, program: TaskOrder) -> Task:
        """Start the program."""
        slot = program.slot
        if not program.is_runtime:
            _link(program.shown)
        with (
            slot.stdout.open("wb") as stdout,
            slot.stderr.open("wb") as stderr,
            open(slot.work / program.stdin if program.stdin else os.devnull, "rb") as stdin,
        ):
            try:
                process = subprocess.Popen(
                    list(program.argv),
                    cwd=slot.work,
                    env=dict(program.env),
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                if is_machines(error):
                    raise
                raise NotExecutable(getattr(error, "errno", 0), str(error)) from error
        with suppress(ProcessLookupError, PermissionError):
            size = program.resources.disk_mb << 20
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, size))
        return _PlainTask(process, program.is_runtime)


# --- behind walls


@dataclass(frozen=True, slots=True, kw_only=True)
class WallOptions:
    """What the machine's owner says about walls; paths are absolute and real."""

    most: int = CGROUP  # level to use at most
    least: int = PROCESS  # level without which no work of strangers runs
    is_pilot: bool = False  # who submitted the pilot answers for all work: none is a stranger's
    allow_network: bool = False  # to strangers' work that asks for it
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _GroupedTask:
    _task: WalledTask
    _group: TaskCgroup | None
    is_sealed: bool  # in a pid namespace
    _kept: KeptCell | None
    is_contained: bool = False

    @property
    def pid(self) -> int:
        return self._task.pid

    def family(self) -> Family:
        found = processes.TABLE.below(self.pid)
        return processes.in_containers(found) if self.is_contained else found

    def ended_within(self, seconds: float) -> bool:
        return self._task.ended_within(seconds)

    def terminate(self) -> None:
        self._task.terminate()

    def pause(self) -> None:
        self._task.pause()

    def resume(self) -> None:
        self._task.resume()

    def finish(self) -> TaskEnd:
        end, is_whole = TaskEnd(-signal.SIGKILL, 0.0), False
        try:
            end, is_whole = _finished(self._task, self._group)
        finally:
            if self._kept and is_whole:
                self._kept.task, self._kept.group = self._task, self._group
            elif self._group:
                self._group.release()
        return end


def _finished(task: WalledTask, group: TaskCgroup | None) -> tuple[TaskEnd, bool]:
    """End a task; return its end, and whether the first process lived to tell.  Raises OSError.

    The kernel may have ended the first process with the others of the group, for their memory.
    """
    try:
        exit_code, cpu_seconds = task.finish()
    except WardenLost:
        if group is None or not group.ran_out_of_memory():
            raise
        return TaskEnd(-signal.SIGKILL, 0.0, is_out_of_memory=True), False
    is_out_of_memory = group is not None and group.ran_out_of_memory()
    return TaskEnd(exit_code, cpu_seconds, is_out_of_memory), True


@dataclass(slots=True)
class _ResidentTask:
    """A job that a resident program runs, as if it were a task."""

    _program: ResidentProgram
    _answered: ResidentAnswer
    _job: ResidentJob
    _kept: KeptCell
    is_sealed: bool = True
    is_contained: bool = False
    _is_asked_to_end: bool = False

    @property
    def pid(self) -> int:
        return self._program.task.pid

    def family(self) -> Family:
        return processes.TABLE.below(self.pid)

    def ended_within(self, seconds: float) -> bool:
        return self._program.wait(self._answered, seconds)

    def terminate(self) -> None:
        self._is_asked_to_end = True
        self._program.task.terminate()

    def pause(self) -> None:
        self._program.task.pause()

    def resume(self) -> None:
        self._program.task.resume()

    def finish(self) -> TaskEnd:
        exit_code = self._answered.exit_code
        if exit_code is not None and not self._is_asked_to_end:
            with suppress(OSError):
                self._program.take_streams(self._job)
                end = TaskEnd(exit_code, self._program.cpu_seconds())
                if self._program.is_alone():
                    self._program.task.pause()
                else:
                    self._kept.close()
                return end
        self._answered.close()
        try:
            end, _ = _finished(self._program.task, self._kept.group)
            return replace(end, cpu_seconds=self._program.since_last(end.cpu_seconds))
        finally:
            with suppress(OSError):
                self._program.take_streams(self._job)
            self._kept.close()


@dataclass(frozen=True, slots=True)
class Walls:
    """Starts programs behind the walls that this machine was proven to have."""

    warden: Warden
    sandbox: Sandbox
    options: WallOptions

    @property
    def keeps_cells(self) -> bool:
        """From level 2 on all processes of a task end before the next one begins."""
        return self.sandbox.level >= NAMESPACES

    def refusal(self, *, is_stranger: bool, least: int = 0) -> str:
        """Refuse strangers' work below the level that it needs, and any below what it asks for."""
        if self.sandbox.level < least:
            return (
                f"the BOT asks for sandbox level {least}, and this machine offers"
                f" {self.sandbox.level} ({self.sandbox.obstacle})"
            )
        is_held = is_stranger and not self.options.is_pilot
        if is_held and self.sandbox.level < max(PROCESS, self.options.least):
            return (
                f"work of others needs sandbox level {max(PROCESS, self.options.least)}, and this"
                f" machine offers {self.sandbox.level} ({self.sandbox.obstacle})"
            )
        return ""

    def start(self, program: TaskOrder) -> Task:
        """Start the program in the cell that is kept for it, if that serves, or in a new one."""
        slot, cell, kept = program.slot, self._cell(program), program.kept
        if program.is_runtime:
            pass  # it shows them
        elif cell.level < NAMESPACES:
            _link(program.shown)
        else:
            _make_mount_points(program.shown)
        if kept and program.job:
            return self._serve(program, cell, kept, program.job)
        if kept and kept.task:
            further = NextTask(cell.argv, cell.env, cell.stdin)
            try:
                with slot.stdout.open("wb") as stdout, slot.stderr.open("wb") as stderr:
                    nobody.give(cell, (slot.work, slot.stdout, slot.stderr))
                    task = kept.task.next(further, stdout.fileno(), stderr.fileno())
            except NotExecutable:
                kept.close()
                raise
            except OSError:  # somebody ended it, or the program's arguments are large
                kept.close()
            else:
                group, kept.task, kept.group = kept.group, None, None
                return _GroupedTask(task, group, is_sealed=True, _kept=kept)
        group = self._group(program)
        try:
            with slot.stdout.open("wb") as stdout, slot.stderr.open("wb") as stderr:
                built = [folder.source for folder in program.shown if folder.is_writable]
                nobody.give(cell, (slot.work, slot.stdout, slot.stderr, *built))
                if kept:
                    kept.folders = _mounted_folders(cell)
                descriptors = group.descriptors if group else ()
                task = self.warden.start(cell, stdout.fileno(), stderr.fileno(), descriptors)
        except OSError:
            if group:
                group.release()
            raise
        stays = kept if cell.stays else None
        return _GroupedTask(task, group, cell.level >= NAMESPACES, stays, program.is_runtime)

    def _serve(self, order: TaskOrder, cell: Cell, kept: KeptCell, job: ResidentJob) -> Task:
        """Give a job to the program in a cell, which is started first if there is none."""
        if kept.program is None:
            self._move_in(order.slot, cell, kept, self._group(order), job.words)
        assert kept.program
        arguments = order.argv[job.words :]
        answered = ResidentAnswer(kept.program.channel, job, arguments, dict(order.env))
        kept.program.task.resume()
        return _ResidentTask(kept.program, answered, job, kept)

    def _move_in(
        self, slot: ReplicaSlot, cell: Cell, kept: KeptCell, group: TaskCgroup | None, words: int
    ) -> None:
        """Start a resident program."""
        cell = cell._replace(argv=cell.argv[:words], has_channel=True)
        near, far = socket.socketpair()
        try:
            # What it prints is taken from these files after each job.
            with far, slot.stdout.open("ab") as stdout, slot.stderr.open("ab") as stderr:
                nobody.give(cell, (slot.work, slot.stdout, slot.stderr))
                descriptors = group.descriptors if group else ()
                task = self.warden.start(
                    cell, stdout.fileno(), stderr.fileno(), descriptors, (far.fileno(),)
                )
        except OSError:
            near.close()
            if group:
                group.release()
            raise
        near.setblocking(False)
        kept.task, kept.group = task, group
        kept.program = ResidentProgram(task, near, slot)

    def _cell(self, program: TaskOrder) -> Cell:
        options, slot = self.options, program.slot
        is_stranger = program.is_stranger and not options.is_pilot
        is_alone = is_stranger and not (program.wants_network and options.allow_network)
        return Cell(
            argv=tuple(program.argv), env=dict(program.env), folder=_real(slot.path),
            work=_real(slot.work),
            level=NONE if program.is_runtime else min(self.sandbox.level, NAMESPACES),
            limits=_limits(program.resources, os.cpu_count() or 1),
            is_stranger=is_stranger, network=not is_alone, reads=options.reads,
            writes=options.writes, hidden=options.hidden,
            stdin=f"{_real(slot.work)}/{program.stdin}" if program.stdin else os.devnull,
            stays=program.kept is not None and self.keeps_cells,
            shown=tuple((_real(s.source), _real(s.target), s.is_writable) for s in program.shown),
        )  # fmt: skip

    def _group(self, program: TaskOrder) -> TaskCgroup | None:
        if self.sandbox.delegation is None:
            return None
        return self.sandbox.delegation.take(
            memory_bytes=program.resources.memory_mb << 20,
            processes=most_processes(program.resources),
            cpus=program.resources.cpus,
        )


@contextmanager
def raised(
    folder: Path, options: WallOptions, *, probe: str = "probe"
) -> Iterator[tuple[Confinement, Sandbox]]:
    """Find the best confinement that works here; at the end nothing of a task is left.

    At level 0 a warden still keeps a task's processes together, where one can run at all.
    It is tried in a folder named `probe`, of which machines that share `folder` have one each.
    """
    warden = Warden()
    sandbox = Sandbox(NONE, "switched off")
    confinement: Confinement
    try:
        try:
            if options.most > NONE:
                sandbox = levels.prove(
                    warden, folder / probe, options.most, hidden=options.hidden,
                    reads=options.reads, writes=options.writes,
                )  # fmt: skip
            else:
                warden.begin()
            confinement = Walls(warden, sandbox, options)
        except OSError as error:
            sandbox, confinement = Sandbox(NONE, str(error)), Plain(options.is_pilot)
        yield confinement, sandbox
    finally:
        warden.close()
        sandbox.close()


def most_processes(resources: Resources) -> int:
    """Processes and threads that a replica may have at once.

    Runtimes start a few threads for each core of the machine, not only for those that they get.
    """
    return 128 * resources.cpus + 2 * (os.cpu_count() or 1)


def _limits(resources: Resources, cpus: int) -> KernelLimits:
    memory = resources.memory_mb << 20
    return KernelLimits(
        processes=most_processes(resources),
        data_bytes=4 * memory + _SPARE_BYTES + cpus * _SPARE_BYTES_PER_CPU,
        file_bytes=resources.disk_mb << 20,
        open_files=_OPEN_FILES,
        shared_bytes=max(_LEAST_SHARED_BYTES, memory // 2),
    )


def identity(path: Path) -> tuple[int, ...]:
    """What tells a folder from another in its place, and whether it is as open.  Raises OSError."""
    status = os.lstat(path)
    return status.st_dev, status.st_ino, status.st_mode


def _mounted_folders(cell: Cell) -> dict[str, tuple[int, ...]]:
    """Make the mount points of a cell that lie in its work folder; return names and identities.

    A task's /tmp is in that folder.  So what it sees below /tmp is mounted there.
    """
    found = ["", "tmp"]
    for path in dict.fromkeys((cell.work, *cell.reads, *cell.writes, *cell.hidden)):
        for top in SHARED[:2]:
            if path.startswith(f"{top}/"):
                name = f"tmp{path.removeprefix(top)}"
                place = Path(cell.work, name)
                if os.path.isfile(path):
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.touch()
                else:
                    place.mkdir(parents=True, exist_ok=True)
                found.append(name)
    below = f"{cell.work}/"
    for _, path, _ in cell.shown:
        if path.startswith(below):
            inside = Path(path.removeprefix(below))
            found += [str(inside), *map(str, inside.parents[:-1])]
    return {name: identity(Path(cell.work, name)) for name in found}


def _link(shown: Iterable[ShownFolder]) -> None:
    """Show folders to a task that has no mounts of its own."""
    for folder in shown:
        if folder.target != folder.source and not folder.target.is_symlink():
            folder.target.parent.mkdir(parents=True, exist_ok=True)
            folder.target.symlink_to(folder.source)


def _make_mount_points(shown: Iterable[ShownFolder]) -> None:
    for folder in shown:
        folder.target.mkdir(parents=True, exist_ok=True)


def _real(path: Path) -> str:
    return os.path.realpath(path)


# --- what one's own work does not see either

_PLACES_OF_KEYS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials", ".pgpass",
    ".password-store", ".mozilla", ".thunderbird", ".config/gridbot", ".config/gh",
    ".config/gcloud", ".config/google-chrome", ".config/chromium", ".local/share/keyrings",
)  # fmt: skip


def hidden_places(folder: Path, home: Path, others: Iterable[Path]) -> tuple[str, ...]:
    """Paths that no task sees: the client's folder, well-known places of keys, and others."""
    wanted = [folder, *(home / name for name in _PLACES_OF_KEYS), *others]
    return tuple(dict.fromkeys(map(_real, wanted)))
