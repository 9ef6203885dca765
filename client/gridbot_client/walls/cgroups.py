"""Level 3: a cgroup per task, below one that this client may write to (v2, or v1's controllers).

The task's first process enters its group, through descriptors opened here, and the task is born in
it, so nothing of the client's counts.  A service manager delegates a group by `Delegate=yes`; in a
container root often owns its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

_PERIOD_US = 100_000
_CONTROLLERS = ("memory", "pids", "cpu")
_REMOVAL_SECONDS = 2.0
_OF_THE_FIRST_PROCESS_BYTES = 4 << 20  # what it writes to of its warden's memory counts, too
_V1_FILES = {
    "memory": "memory.limit_in_bytes", "pids": "pids.max", "cpu": "cpu.cfs_quota_us",
}  # fmt: skip


class TaskCgroup:
    """The cgroups of one task, entered through `descriptors`."""

    def __init__(self, delegation: Delegation, name: str) -> None:
        """Make the groups.  Raises OSError."""
        self.descriptors: tuple[int, ...] = ()
        self._delegation = delegation
        self._places = {key: parent / name for key, parent in delegation.parents.items()}
        self._folders = tuple(dict.fromkeys(self._places.values()))
        events = "memory.events" if delegation.version == 2 else "memory.oom_control"
        self._events = f"{self._places['memory']}/{events}"
        self._current = f"{self._places['pids']}/pids.current"
        self._limits: dict[str, int] = {}
        self._kills = 0  # for want of memory, as far as is known
        try:
            for folder in self._folders:
                folder.mkdir(exist_ok=True)
                entry = os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
                self.descriptors += (entry,)
        except OSError:
            self.remove()
            raise

    def limit(self, limits: Mapping[str, int]) -> None:
        """Set the limits of the next task, by controller."""
        for controller, folder in self._places.items():
            if self._limits.get(controller) != limits[controller]:
                _set(folder, controller, limits[controller], self._delegation.version)
                self._limits[controller] = limits[controller]

    def ran_out_of_memory(self) -> bool:
        """True if the kernel killed a process for want of memory since this was asked last."""
        before, self._kills = self._kills, self._memory_kills()
        return self._kills > before

    def release(self) -> None:
        """Let another task have the groups, once nothing of this one is left in them."""
        self._delegation.give_back(self)

    @property
    def is_empty(self) -> bool:
        """True if no process is in them, nor one that nobody has reaped."""
        with suppress(OSError):
            return _read(self._current) == b"0\n"
        return False

    def remove(self) -> None:
        """Remove the groups, once they are empty."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = ()
        until = time.monotonic() + _REMOVAL_SECONDS
        for folder in self._folders:
            while folder.exists():
                try:
                    folder.rmdir()
                except OSError:  # a dying process is still counted
                    if time.monotonic() > until:
                        break
                    time.sleep(0.005)

    def _memory_kills(self) -> int:
        with suppress(OSError):
            for line in _read(self._events).splitlines():
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
        return 0


class Delegation:
    """Groups of this process in which it may make others, by controller.

    Making and removing a task's groups costs a millisecond, so they serve one task after another.
    Those that nobody uses are removed by `close`, or by the next client's `sweep`.
    """

    def __init__(self, version: int, parents: Mapping[str, Path]) -> None:
        self.version = version
        self.parents = parents
        self._lock = threading.Lock()
        self._free: list[TaskCgroup] = []
        self._made = 0

    def sweep(self) -> None:
        """Remove empty groups that killed clients left."""
        for parent in set(self.parents.values()):
            for folder in parent.glob("gridbot-*-*"):
                owner = folder.name.split("-")[1]
                if owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
                    with suppress(OSError):  # not empty, or another client was quicker
                        folder.rmdir()

    def take(self, *, memory_bytes: int, processes: int, cpus: int) -> TaskCgroup:
        """Groups with the limits of a task.  Raises OSError."""
        limits = {
            "memory": memory_bytes + _OF_THE_FIRST_PROCESS_BYTES,
            "pids": processes + 1,
            "cpu": cpus * _PERIOD_US,
        }
        while (group := self._used_before()) is not None:
            try:
                group.limit(limits)
            except OSError:  # what the last task left in the page cache is more than the limit
                group.remove()
            else:
                return group
        with self._lock:
            self._made += 1
            name = f"gridbot-{os.getpid()}-{self._made}"
        group = TaskCgroup(self, name)
        try:
            group.limit(limits)
        except OSError:
            group.remove()
            raise
        return group

    def _used_before(self) -> TaskCgroup | None:
        with self._lock:
            found = next((group for group in self._free if group.is_empty), None)
            if found:
                self._free.remove(found)
        return found

    def give_back(self, group: TaskCgroup) -> None:
        """Take groups for other tasks."""
        with self._lock:
            self._free.append(group)

    def close(self) -> None:
        """Remove the groups that no task uses."""
        with self._lock:
            free, self._free = self._free, []
        for group in free:
            group.remove()


def find() -> Delegation | None:
    """Writable groups of this process with memory and pids limits; None without them."""
    own = dict(_memberships())
    if "" in own and (unified := _unified(Path("/sys/fs/cgroup"), own[""])):
        return Delegation(2, dict.fromkeys(_CONTROLLERS, unified))
    found = {}
    for controller in _CONTROLLERS:
        mounted = Path("/sys/fs/cgroup") / controller
        folder = mounted / own.get(controller, "/").lstrip("/")
        folder = folder if folder.is_dir() else mounted  # a container sees only its own group
        if (folder / "cgroup.procs").exists() and os.access(folder, os.W_OK):
            found[controller] = folder
    return Delegation(1, found) if {"memory", "pids"} <= found.keys() else None


def _memberships() -> Iterator[tuple[str, str]]:
    """Yield (controller, group) of this process; the controller of v2 is "" (cgroups(7))."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            for controller in controllers.split(","):
                yield controller, group


def _unified(mounted: Path, group: str) -> Path | None:
    """The group of v2 below which tasks' groups may be made.

    A group with processes of its own cannot hand out controllers (the rule of no internal
    processes), so this process moves into a leaf first.
    """
    folder = mounted / group.lstrip("/")
    try:
        offered = (folder / "cgroup.controllers").read_text().split()
        if not {"memory", "pids"} <= set(offered) or not os.access(folder, os.W_OK):
            return None
        if folder.name == "gridbot-client":  # an earlier client moved us
            return folder.parent
        leaf = folder / "gridbot-client"
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
        wanted = " ".join(f"+{name}" for name in _CONTROLLERS if name in offered)
        (folder / "cgroup.subtree_control").write_text(wanted)
    except OSError:
        return None
    return folder


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


def _set(folder: Path, controller: str, value: int, version: int) -> None:
    if version == 1:
        (folder / _V1_FILES[controller]).write_text(str(value))
    elif controller == "cpu":
        with suppress(OSError):  # not delegated everywhere
            (folder / "cpu.max").write_text(f"{value} {_PERIOD_US}")
    else:
        (folder / f"{controller}.max").write_text(str(value))
        if controller == "memory":
            with suppress(OSError):
                (folder / "memory.oom.group").write_text("1")
