"""Level 3: a cgroup per task, below one that this client may write to (v2, or v1's controllers).

The task enters its group itself, through descriptors opened here, and so nothing of the client's
counts in it.  A service manager delegates a group by `Delegate=yes`; in a container root often
owns its own.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PERIOD_US = 100_000
_CONTROLLERS = ("memory", "pids", "cpu")
_REMOVAL_SECONDS = 2.0
_V1_FILES = {
    "memory": "memory.limit_in_bytes", "pids": "pids.max", "cpu": "cpu.cfs_quota_us",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TaskCgroup:
    """The cgroups of one task, entered through `descriptors`."""

    folders: tuple[Path, ...]
    descriptors: tuple[int, ...]
    events: Path  # counts kills for want of memory

    def ran_out_of_memory(self) -> bool:
        """True if the kernel killed one of its processes for want of memory."""
        with suppress(OSError):
            return re.search(r"^oom_kill [1-9]", self.events.read_text(), re.MULTILINE) is not None
        return False

    def entered(self) -> None:
        """Close the descriptors."""
        for descriptor in self.descriptors:
            os.close(descriptor)

    def remove(self) -> None:
        """Remove the groups, once they are empty."""
        until = time.monotonic() + _REMOVAL_SECONDS
        for folder in self.folders:
            while folder.exists():
                try:
                    folder.rmdir()
                except OSError:  # a dying process is still counted
                    if time.monotonic() > until:
                        break
                    time.sleep(0.005)


@dataclass(frozen=True, slots=True)
class Delegation:
    """Groups of this process in which it may make others, by controller."""

    version: int
    parents: Mapping[str, Path]

    def sweep(self) -> None:
        """Remove empty groups that killed clients left."""
        for parent in set(self.parents.values()):
            for folder in parent.glob("gridbot-*-*"):
                owner = folder.name.split("-")[1]
                if owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
                    with suppress(OSError):  # not empty, or another client was quicker
                        folder.rmdir()

    def make(self, name: str, *, memory_bytes: int, processes: int, cpus: int) -> TaskCgroup:
        """Make the groups of a task with its limits.  Raises OSError."""
        limits = {"memory": memory_bytes, "pids": processes, "cpu": cpus * _PERIOD_US}
        made: dict[str, Path] = {}
        descriptors: list[int] = []
        try:
            for controller, parent in self.parents.items():
                made[controller] = folder = parent / name
                folder.mkdir(exist_ok=True)
                _set(folder, controller, limits[controller], self.version)
            for folder in dict.fromkeys(made.values()):
                descriptors.append(os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
        except OSError:
            TaskCgroup(tuple(made.values()), tuple(descriptors), Path()).remove()
            raise
        events = "memory.events" if self.version == 2 else "memory.oom_control"
        folders = tuple(dict.fromkeys(made.values()))
        return TaskCgroup(folders, tuple(descriptors), made["memory"] / events)


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
