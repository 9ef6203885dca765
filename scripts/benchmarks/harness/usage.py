"""What the server's processes use: memory and CPU time, by process and together."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from .database import Database

_CALM_SECONDS, _LOOK_SECONDS = 60.0, 0.5
_CALM_SHARE = 0.15  # of one CPU, for all of the server's processes
# The clock of another process's CPU time (ns), as glibc's clock_getcpuclockid(3) makes its number.
_CPUCLOCK_SCHED = 2
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
    return {name: sum(family.values()) for name, family in cpu_by_process(roots).items()}


def cpu_by_process(roots: Mapping[str, int]) -> dict[str, dict[int, float]]:
    """CPU time so far of each process, by name of the one that it descends from."""
    families = zip(roots, _families(roots), strict=True)
    return {name: {item.pid: _cpu(item) for item in family} for name, family in families}


def busy_seconds() -> float:
    """CPU time that anybody used so far on any core, what the machine's own host took included."""
    times = psutil.cpu_times()
    # The time of a guest is part of the user's already.
    return float(sum(times[:8]) - times.idle - times.iowait)


def wait_for_calm(roots: Mapping[str, int]) -> None:
    """Let the server finish what a submission left it to do, vacuum above all."""
    gives_up_at = time.monotonic() + _CALM_SECONDS
    used, before = _LOOK_SECONDS, sum(cpu_seconds(roots).values())
    while used > _CALM_SHARE * _LOOK_SECONDS and time.monotonic() < gives_up_at:
        time.sleep(_LOOK_SECONDS)
        now = sum(cpu_seconds(roots).values())
        used, before = now - before, now


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU time (s) that was used so far, or between two moments."""

    groups: Mapping[str, float]  # by the process that the server knows
    backends: Mapping[str, float]  # PostgreSQL's part, by whom its processes serve
    busy: float  # the whole machine, anybody's
    at: float  # s, of a clock

    def since(self, before: Usage) -> Usage:
        """What was used between two moments."""
        return Usage(
            {name: value - before.groups[name] for name, value in self.groups.items()},
            {name: value - before.backends.get(name, 0.0) for name, value in self.backends.items()},
            self.busy - before.busy,
            self.at - before.at,
        )


class Meter:
    """Reads what the processes of a server used; `database` tells PostgreSQL's processes apart."""

    def __init__(self, roots: Mapping[str, int], database: Database | None = None) -> None:
        self._roots, self._database = roots, database

    def read(self) -> Usage:
        """The state of now."""
        used = cpu_by_process(self._roots)
        groups = {name: sum(family.values()) for name, family in used.items()}
        served = self._database.backends() if self._database else {}
        backends = by_purpose(used["postgresql"], served) if served else {}
        return Usage(groups, backends, busy_seconds(), time.monotonic())


def by_purpose(processes: Mapping[int, float], names: Mapping[int, str]) -> dict[str, float]:
    """Sum up the CPU time of PostgreSQL's processes by whom they serve."""
    found = dict.fromkeys(("host requests", "feeder", "daemons", "upkeep"), 0.0)
    for pid, seconds in processes.items():
        found[purpose(names.get(pid, ""))] += seconds
    return found


def purpose(application: str) -> str:
    """Whom a connection serves, by its `application_name`; PostgreSQL's own processes have none."""
    if application.startswith(("gridbot-web", "gridbot web")):
        return "host requests"
    if application == "gridbot-feeder":
        return "feeder"
    return "daemons" if application.startswith("gridbot") else "upkeep"


def _families(roots: Mapping[str, int]) -> list[list[psutil.Process]]:
    """Each process with its descendants; one that is a root itself is its parent's no more."""
    children: dict[int, list[psutil.Process]] = defaultdict(list)
    for process in psutil.process_iter(["ppid"]):
        if process.pid not in roots.values():
            children[process.info["ppid"]].append(process)
    families = []
    for pid in roots.values():
        family = [psutil.Process(pid)]
        for process in family:
            family += children[process.pid]
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
    """What it used itself, and what those of its children used that have ended."""
    with suppress(psutil.Error, OSError):
        ended = sum(process.cpu_times()[2:4])  # in ticks of 10 ms
        return time.clock_gettime(~process.pid << 3 | _CPUCLOCK_SCHED) + ended
    return 0.0
