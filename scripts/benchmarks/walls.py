"""What walls cost per job: CPU time of /bin/true at each level, beside no walls and no warden.

Counted is the CPU time of the client, its warden and all that these start and reap.  What the
kernel does later in its own threads, above all to take network namespaces apart, is not in it.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from gridbot_client.protocol.messages import ReplicaId, Resources
from gridbot_client.work.confinement import Confinement, Plain, TaskOrder, WallOptions, raised
from gridbot_client.work.slots import slot_of

from .harness.command import measurement, quick_option
from .harness.windows import Row

_WARM_UP = 5


@dataclass(frozen=True, slots=True)
class _Cost:
    """CPU and wall time: ms of one job, or s of all."""

    cpu: float
    wall: float


@measurement()
@click.option("--jobs", type=click.IntRange(1), default=100, help="Jobs of each timing.")
@click.option("--rounds", type=click.IntRange(1), default=5, help="Timings of each level, in turn.")
@quick_option()
def walls(jobs: int, rounds: int, quick: bool) -> list[Row]:
    """CPU time of a job behind walls, by level."""
    if quick:
        jobs, rounds = 5, 1
    plain: dict[str, Callable[[int], _Cost]] = {"no warden": _plain}
    offered = _offered()
    subjects = plain | {f"level {level}": _Level(level).cost for level in range(offered + 1)}
    found: dict[str, list[_Cost]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, cost in subjects.items():
            found[name].append(cost(jobs))
    return [_row(name, found) for name in subjects]


def _row(name: str, found: dict[str, list[_Cost]]) -> Row:
    """Medians, and the medians of differences within a round."""

    def over(base: str) -> float:
        pairs = zip(found[name], found[base], strict=True)
        return statistics.median(one.cpu - other.cpu for one, other in pairs)

    return {
        "walls": name,
        "cpu_ms": statistics.median(cost.cpu for cost in found[name]),
        "over_no_warden_ms": over("no warden"),
        "over_level_0_ms": over("level 0"),
        "wall_ms": statistics.median(cost.wall for cost in found[name]),
    }


@dataclass(frozen=True, slots=True)
class _Level:
    level: int

    def cost(self, jobs: int) -> _Cost:
        """Cost of a job: that of many jobs beyond that of a few, start of the warden included."""
        few, many = self._spent(_WARM_UP), self._spent(_WARM_UP + jobs)
        return _Cost(1e3 * (many.cpu - few.cpu) / jobs, 1e3 * (many.wall - few.wall) / jobs)

    def _spent(self, jobs: int) -> _Cost:
        before, began = _cpu_seconds(), time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="gridbot-bench-") as name:
            options = WallOptions(most=self.level, hidden=(name,))
            with raised(Path(name), options) as (confinement, _):
                _run(confinement, Path(name), jobs, is_stranger=self.level > 0)
        return _Cost(_cpu_seconds() - before, time.perf_counter() - began)


def _plain(jobs: int) -> _Cost:
    before, began = _cpu_seconds(), time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="gridbot-bench-") as name:
        _run(Plain(), Path(name), jobs, is_stranger=False)
    seconds, spent = time.perf_counter() - began, _cpu_seconds() - before
    return _Cost(1e3 * spent / jobs, 1e3 * seconds / jobs)


def _run(confinement: Confinement, folder: Path, jobs: int, *, is_stranger: bool) -> None:
    slot = slot_of(folder, ReplicaId(1, 1, 1))
    slot.path.mkdir()
    for _ in range(jobs):
        slot.reset()
        order = TaskOrder(("/bin/true",), {}, slot, Resources(), is_stranger)
        task = confinement.start(order)
        while not task.ended_within(10.0):
            pass
        task.finish()


def _offered() -> int:
    with (
        tempfile.TemporaryDirectory(prefix="gridbot-bench-") as name,
        raised(Path(name), WallOptions(hidden=(name,))) as (_, sandbox),
    ):
        return sandbox.level


def _cpu_seconds() -> float:
    """CPU time of this process and of all that it and its children reaped."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
