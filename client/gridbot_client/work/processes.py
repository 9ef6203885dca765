"""Finds, measures and kills the processes of a task, also those that left its process group."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import psutil

from gridbot_client.walls import tree

SLOT_VARIABLE = "GRIDBOT_SLOT"
_TABLE_SECONDS = 0.2
_USUAL_FILTERS, _FILTER_BYTES = 3, 288 << 10  # of system calls; one of the greatest length


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
    """Memory of some processes in bytes, also in swap, with what the kernel keeps beside.

    Who reads a page in every two megabytes of empty memory has no more of it resident, but a page
    of tables for each.  Resident sizes count shared pages once per process, which is unfair to
    programs that fork.  So a sum above `limit` is measured again by proportional set size, which
    is exact but slow.
    """
    beside = [_beside(pid) for pid in pids]
    kept, swapped = sum(one.kept for one in beside), sum(one.swapped for one in beside)
    resident = sum(_measure(pid, lambda process: process.memory_info().rss) for pid in pids)
    if resident + swapped + kept <= limit:
        return resident + swapped + kept
    return sum(_measure(pid, _share) for pid in pids) + kept


class _Beside(NamedTuple):
    """Bytes beside a process's resident memory."""

    kept: int  # by the kernel: page tables, and filters of system calls
    swapped: int


def _beside(pid: int) -> _Beside:
    """What is beside; nothing once a process has ended, and on a system without /proc."""
    try:
        text = _status(pid)
    except OSError:
        return _Beside(0, 0)
    filters = max(0, _number(text, "Seccomp_filters") - _USUAL_FILTERS)
    tables, swapped = _number(text, "VmPTE"), _number(text, "VmSwap")
    return _Beside(tables * 1024 + filters * _FILTER_BYTES, swapped * 1024)


def _number(text: str, name: str) -> int:
    """A number of /proc/PID/status; 0 for what this kernel does not tell, or of who has ended."""
    with suppress(IndexError):
        return int(text.partition(f"\n{name}:")[2].split(None, 1)[0])
    return 0


def cpu_seconds(pids: Collection[int]) -> float:
    """CPU seconds that processes and their reaped children have used."""
    return sum(_measure(pid, lambda process: sum(process.cpu_times()[:4])) for pid in pids)


def _share(process: psutil.Process) -> int:
    """Share of a process in memory and swap; all of the former if it hides itself."""
    with suppress(OSError):
        text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        return (_number(text, "Pss") + _number(text, "SwapPss")) * 1024
    return int(process.memory_info().rss)


def _measure(pid: int, measure: Callable[[psutil.Process], N]) -> N | int:
    try:
        return measure(psutil.Process(pid))
    except (psutil.Error, OSError):
        return 0
