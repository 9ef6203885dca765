"""What the server's processes use: memory and CPU time, by process and together."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_SAMPLE_SECONDS = 0.25
_SIZE = re.compile(r"^(\w+): +(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of some processes together, in MB; a page that several share counts once.

    `own` is what the programs allocated.  `shared` is PostgreSQL's shared buffers as far as they
    are used, which its configuration bounds, and the scheduling buffer.
    """

    own: float = 0.0
    shared: float = 0.0
    files: float = 0.0  # programs and libraries
    rss: float = 0.0  # as `ps` adds it up: what n processes share counts n times

    @property
    def pss(self) -> float:
        """All of it."""
        return self.own + self.shared + self.files

    def __add__(self, other: Memory) -> Memory:
        return Memory(
            self.own + other.own,
            self.shared + other.shared,
            self.files + other.files,
            self.rss + other.rss,
        )


def memory_of(roots: Mapping[str, int]) -> Memory:
    """Measure the processes of a server, their children included."""
    return sum((_memory(process) for family in _families(roots) for process in family), Memory())


def cpu_seconds(roots: Mapping[str, int]) -> dict[str, float]:
    """CPU time so far, by name of the process; children count for the one that has them."""
    found = dict.fromkeys(roots, 0.0)
    for name, family in zip(roots, _families(roots), strict=True):
        found[name] = sum(_cpu(process) for process in family)
    return found


class MemoryWatch:
    """Notes the highest memory, by its `pss`, while the block runs."""

    def __init__(self, roots: Mapping[str, int]) -> None:
        self._roots = roots
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.before = self.peak = memory_of(roots)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            self.peak = max(self.peak, memory_of(self._roots), key=lambda found: found.pss)


def _families(roots: Mapping[str, int]) -> list[list[psutil.Process]]:
    """Each process with its descendants; one that is a root itself is its parent's no more."""
    families = []
    for pid in roots.values():
        family = [psutil.Process(pid)]
        for process in family:
            family += [child for child in process.children() if child.pid not in roots.values()]
        families.append(family)
    return families


def _memory(process: psutil.Process) -> Memory:
    """Read the kernel's sums; psutil gives the shares of all kinds of memory together only."""
    with suppress(OSError):  # it ended meanwhile
        text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        found = {name: int(kb) / 1024 for name, kb in _SIZE.findall(text)}
        return Memory(found["Pss_Anon"], found["Pss_Shmem"], found["Pss_File"], found["Rss"])
    return Memory()


def _cpu(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        times = process.cpu_times()
        return times.user + times.system
    return 0.0
