"""Finds, measures and kills the processes of a task, also those that left its process group."""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from gridbot_client.walls import tree

SLOT_VARIABLE = "GRIDBOT_SLOT"
_TABLE_SECONDS = 0.2
_MOST_SENT = 16
_SHARED_MEMORY = (b"00:01", b"/dev/zero (deleted)\n")  # in /proc/PID/maps
_ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


class Census:
    """Finds processes by the slot that their environment names, which descendants inherit.

    A process without a slot in its environment never gets one, except a group leader between fork
    and exec, which its starter knows anyway.  So each foreign process is inspected only once, and
    a census of a busy machine costs little more than a list of process ids.
    """

    def __init__(self) -> None:
        self._foreign: set[int] = set()
        self._lock = threading.Lock()

    def of_slot(self, slot: str) -> list[psutil.Process]:
        """Living processes of one slot."""
        return self._matching(lambda found: found == slot)

    def under(self, folder: str) -> list[psutil.Process]:
        """Living processes of all slots below a folder."""
        return self._matching(lambda found: found.startswith(folder + os.sep))

    def _matching(self, is_ours: Callable[[str], bool]) -> list[psutil.Process]:
        pids = set(psutil.pids())
        with self._lock:
            self._foreign &= pids
            candidates = pids - self._foreign
        return [found for pid in candidates if (found := self._inspect(pid, is_ours))]

    def _inspect(self, pid: int, is_ours: Callable[[str], bool]) -> psutil.Process | None:
        """Process `pid` if it lives and is ours, else None; dead or unreadable ones never are."""
        try:
            process = psutil.Process(pid)
            slot = process.environ().get(SLOT_VARIABLE)
        except (psutil.Error, OSError):
            slot = None
        if slot is None:
            with self._lock:
                self._foreign.add(pid)
            return None
        return process if is_ours(slot) and process.is_running() else None


@dataclass(frozen=True, slots=True)
class Family:
    """Living processes of a task, and the number of their threads."""

    pids: frozenset[int]
    threads: int


class ProcessTable:
    """All processes by their parents, read once for all tasks that are looked at together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._table: dict[int, tree.ProcessEntry] = {}
        self._read_at = -_TABLE_SECONDS

    def below(self, root: int, *, included: bool = False) -> Family:
        """Return what descends from a process."""
        if not os.path.exists("/proc/self/stat"):
            return _asked(root, included)
        with self._lock:
            if time.monotonic() - self._read_at >= _TABLE_SECONDS:
                self._table = tree.processes()
                self._read_at = time.monotonic()
            table = self._table
        found = tree.below(root, table) | ({root} if included else set())
        living = {pid for pid in found if pid in table and not table[pid].is_dead}
        return Family(frozenset(living), sum(table[pid].threads for pid in living))


def in_containers(family: Family) -> Family:
    """Those that have a pid namespace of their own: not the runtime that serves them."""
    threads = {pid: _threads_inside(pid) for pid in family.pids}
    return Family(frozenset(pid for pid in threads if threads[pid]), sum(threads.values()))


def _threads_inside(pid: int) -> int:
    """Threads of a process of another pid namespace; 0 for one of ours, and one that has ended."""
    with suppress(OSError, KeyError, ValueError):
        said = dict(line.split(":", 1) for line in _status(pid).splitlines())
        ours = _status(os.getpid()).partition("NSpid:")[2].partition("\n")[0]
        if len(said["NSpid"].split()) > len(ours.split()):
            return int(said["Threads"])
    return 0


def _status(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text(errors="replace")


def _asked(root: int, included: bool) -> Family:
    """Return the family on a system without /proc."""
    found: list[psutil.Process] = []
    with suppress(psutil.Error):
        process = psutil.Process(root)
        found = [*process.children(recursive=True), *([process] if included else [])]
    return Family(frozenset(process.pid for process in found), len(found))


TABLE = ProcessTable()


def kill_all(find: Callable[[], list[psutil.Process]], patience_seconds: float = 5.0) -> bool:
    """Kill the processes of `find` until it finds none; False if patience ends before.

    One pass is not enough, because a process may fork while the others are being killed.
    """
    end = time.monotonic() + patience_seconds
    while found := find():
        if time.monotonic() > end:
            return False
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=0.2)
    return True


def kill_group(leader: int, number: int = signal.SIGKILL) -> None:
    """Signal a process group, if there is one."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def kill_recorded(pid: int, created: float) -> None:
    """Kill a process group that an earlier run recorded, if its leader still lives."""
    with suppress(psutil.Error):
        if pid and abs(psutil.Process(pid).create_time() - created) < 0.5:
            kill_group(pid)


N = TypeVar("N", int, float)


def memory_bytes(pids: Collection[int], limit: int) -> int:
    """Memory of some processes in bytes, with the page tables that the kernel keeps for them.

    Who reads a page in every two megabytes of empty memory has no more of it resident, but a page
    of tables for each.  Resident sizes count shared pages once per process, which is unfair to
    programs that fork.  So a sum above `limit` is measured again by proportional set size, which
    is exact but slow.
    """
    tables = sum(_page_tables(pid) for pid in pids)
    resident = sum(_measure(pid, lambda process: process.memory_info().rss) for pid in pids)
    if resident + tables <= limit:
        return resident + tables
    return sum(_measure(pid, _share) for pid in pids) + tables


def _page_tables(pid: int) -> int:
    """Bytes of a process's page tables; 0 once it has ended, and on a system without /proc."""
    with suppress(OSError, IndexError):
        return int(_status(pid).partition("\nVmPTE:")[2].split()[0]) * 1024
    return 0


def cpu_seconds(pids: Collection[int]) -> float:
    """CPU seconds that processes and their reaped children have used."""
    return sum(_measure(pid, lambda process: sum(process.cpu_times()[:4])) for pid in pids)


def _share(process: psutil.Process) -> int:
    try:
        info = process.memory_full_info()
    except psutil.AccessDenied:  # the process hides itself, and so counts in full
        return int(process.memory_info().rss)
    return int(getattr(info, "pss", info.rss))


class OpenFiles:
    """What some processes have open that no directory shows."""

    def __init__(self, pids: Collection[int]) -> None:
        self.is_hidden = False  # a process hides what it has open, or sends it around
        self._deleted: dict[tuple[int, int], int] = {}
        self._sockets: set[int] = set()
        self._sent = 0  # descriptors that are on their way through sockets
        for pid in pids:
            try:
                self._look_at(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue
            except PermissionError:
                with suppress(psutil.Error):
                    self.is_hidden |= psutil.Process(pid).status() not in _ENDED
        self.is_hidden |= self._sent > _MOST_SENT

    @property
    def deleted_bytes(self) -> int:
        """Space of deleted files, among them those in memory (memfd).

        A file that is mapped and closed counts by the size of its mapping.
        """
        return sum(self._deleted.values())

    @property
    def sockets(self) -> int:
        """Number of sockets."""
        return len(self._sockets)

    def _look_at(self, pid: int) -> None:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError, ProcessLookupError):
                status = os.stat(f"/proc/{pid}/fd/{name}")
                if status.st_nlink == 0 and stat.S_ISREG(status.st_mode):
                    self._deleted[status.st_dev, status.st_ino] = status.st_blocks * 512
                elif stat.S_ISSOCK(status.st_mode) and status.st_ino not in self._sockets:
                    self._sockets.add(status.st_ino)
                    self._sent += _sent(f"/proc/{pid}/fdinfo/{name}")
        with open(f"/proc/{pid}/maps", "rb") as maps:
            _add_mapped(maps, self._deleted)


def _sent(path: str) -> int:
    """Descriptors in the queue of a socket (scm_fds of proc_pid_fdinfo(5), since Linux 5.11)."""
    with open(path, "rb") as information:
        for line in information:
            if line.startswith(b"scm_fds:"):
                return int(line.split()[1])
    return 0


def _add_mapped(maps: Iterable[bytes], found: dict[tuple[int, int], int]) -> None:
    """Add deleted files of /proc/PID/maps that are not open, by what is mapped of them.

    Memory that processes share is kept as a file of the kernel's own, and counts as memory.
    """
    for line in maps:
        if not line.endswith(b" (deleted)\n"):
            continue
        addresses, _, _, device, inode, path = line.split(None, 5)
        if (device, path) == _SHARED_MEMORY:
            continue
        first, last = (int(address, 16) for address in addresses.split(b"-"))
        major, minor = (int(part, 16) for part in device.split(b":"))
        found.setdefault((os.makedev(major, minor), int(inode)), last - first)


def _measure(pid: int, measure: Callable[[psutil.Process], N]) -> N | int:
    try:
        return measure(psutil.Process(pid))
    except (psutil.Error, OSError):
        return 0
