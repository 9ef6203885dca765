"""Processes by their parents, from /proc; and the end of all that descends from one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import NamedTuple

PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.002


class ProcessEntry(NamedTuple):
    """One process."""

    parent: int
    threads: int
    is_dead: bool  # a zombie


def processes() -> dict[int, ProcessEntry]:
    """All processes of this machine, or of this pid namespace."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                found[int(name)] = _read(name)
    return found


def below(root: int, table: Mapping[int, ProcessEntry]) -> set[int]:
    """Ids of all descendants of a process."""
    children: dict[int, list[int]] = {}
    for pid, entry in table.items():
        children.setdefault(entry.parent, []).append(pid)
    found, left = set[int](), [root]
    while left:
        for pid in children.get(left.pop(), ()):
            if pid not in found:
                found.add(pid)
                left.append(pid)
    return found


def signal_below(root: int, number: int) -> None:
    """Signal all descendants of a process, and those that they start meanwhile."""
    told = set[int]()
    while found := below(root, processes()) - told:
        told |= found
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def end_descendants(reap: Callable[[], object], spared: Collection[int] = ()) -> None:
    """Kill all descendants of this process, which must be a subreaper; `reap` takes dead children.

    Spares children of its own that are named, and what is below them.  One pass is not enough,
    because a process may fork while the others are being killed.
    """
    until = time.monotonic() + PATIENCE_SECONDS
    while _has_children() and time.monotonic() < until:
        table = processes()
        mine = {pid: entry for pid, entry in table.items() if pid not in spared}
        found = below(os.getpid(), mine)
        if not found:
            return
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        reap()
        time.sleep(_PAUSE_SECONDS)


def _has_children() -> bool:
    """True if this process has children: what descends from a subreaper comes to be its child."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _read(name: str) -> ProcessEntry:
    descriptor = os.open(f"/proc/{name}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(descriptor, 1024)
    finally:
        os.close(descriptor)
    # The name stands in parentheses and may hold any character (proc_pid_stat(5)).
    fields = text[text.rindex(b")") + 2 :].split()
    return ProcessEntry(int(fields[1]), int(fields[17]), fields[0] in (b"Z", b"X"))
