"""Finds and kills the processes of a slot, also those that left its process group."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TypeVar

import psutil

SLOT_VARIABLE = "GRIDBOT_SLOT"


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
    """Memory of some processes in bytes.

    Resident sizes count shared pages once per process, which is unfair to programs that fork.
    So a sum above `limit` is measured again by proportional set size, which is exact but slow.
    """
    resident = sum(_measure(pid, lambda process: process.memory_info().rss) for pid in pids)
    if resident <= limit:
        return resident
    return sum(_measure(pid, _share) for pid in pids)


def cpu_seconds(pids: Collection[int]) -> float:
    """CPU seconds that processes and their reaped children have used."""
    return sum(_measure(pid, lambda process: sum(process.cpu_times()[:4])) for pid in pids)


def _share(process: psutil.Process) -> int:
    info = process.memory_full_info()
    return int(getattr(info, "pss", info.rss))


def _measure(pid: int, measure: Callable[[psutil.Process], N]) -> N | int:
    try:
        return measure(psutil.Process(pid))
    except (psutil.Error, OSError):
        return 0
