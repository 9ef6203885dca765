"""Simulations of experiments, kept in a file: what is there is not simulated again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gridbot_client
import gridbot_policies
import gridbot_server
import gridbot_simulator
from gridbot_simulator.world.simulation import BotCourse, Ran, Scenario, Simulation

from .experiments import Era, Experiment

_HOUR = 3600.0
_PARTS = 120  # of a BOT's jobs: the paper's 1000, 500, 100 and 50 of 1,200 are parts of them
_LAST = 60  # jobs, which are told one by one


@dataclass(frozen=True, slots=True)
class BotRun:
    """What became of one BOT; times in hours since it was submitted."""

    jobs: int
    failed: int
    hours: float | None  # None if it did not end
    replicas_percent: float  # speculative ones, of its jobs
    waste_percent: float  # answers beyond one a job, of its jobs
    left: Sequence[tuple[int, float]]  # jobs left, and when: the most first

    def when_left(self, left: int) -> float:
        """When no more than so many jobs were left; raises ValueError if that never was."""
        for jobs, hours in self.left:
            if jobs <= left:
                return hours
        raise ValueError(f"more than {left} jobs were left to the end")

    @property
    def run_hours(self) -> float | None:
        """From its beginning, which the paper sees when 1000 of 1,200 jobs are left, to its end."""
        return None if self.hours is None else self.hours - self.when_left(self.jobs * 1000 // 1200)


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation of an experiment."""

    figure: str
    name: str
    era: Era
    scale: float
    seed: int
    input: str  # digest of all that was simulated
    why_not: str  # it did not end; empty if it did
    bots: Sequence[BotRun]
    cpu_hours: float
    aborted_cpu_hours: float
    lost_cpu_hours: float
    useful_cpu_hours: Mapping[str, float]  # by grid; "" are volunteers
    decisions: str  # digest of who got what

    @property
    def line(self) -> str:
        """As it is kept."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> Run:
        """Read what `line` made."""
        found: dict[str, Any] = json.loads(line)
        return cls(**{**found, "bots": [BotRun(**bot) for bot in found["bots"]]})


def simulate(experiment: Experiment, era: Era, scale: float, seed: int) -> Run:
    """Simulate an experiment under one seed."""
    scenario = experiment.scenario(era, scale, seed)
    digest = _digest(scenario)
    ran = Simulation(scenario).run()
    return Run(
        experiment.figure, experiment.name, era, scale, seed, digest, ran.why_not,
        [_bot(item, ran) for item in ran.courses],
        round(ran.spent.total / _HOUR, 3), round(ran.spent.aborted / _HOUR, 3),
        round(ran.spent.lost / _HOUR, 3),
        {grid: round(cpu / _HOUR, 3) for grid, cpu in sorted(ran.useful_by_grid.items())},
        ran.decisions,
    )  # fmt: skip


def _bot(item: BotCourse, ran: Ran) -> BotRun:
    bot = item.bot
    hours = None if bot.ended_at is None else round((bot.ended_at - ran.begins_at) / _HOUR, 4)
    return BotRun(
        bot.size, bot.failed, hours,
        round(100 * bot.counts["sent_tail"] / bot.size, 2),
        round(100 * (item.answers - bot.done) / bot.size, 2),
        [(left, round(at / _HOUR, 4)) for left, at in _thinned(item.left, bot.size)],
    )  # fmt: skip


def _thinned(left: Sequence[tuple[float, int]], size: int) -> Iterator[tuple[int, float]]:
    """Jobs left and when: at the beginning, at each part of the jobs, and the last one by one."""
    levels = {round(size * part / _PARTS) for part in range(_PARTS)} | {*range(_LAST)}
    wanted = sorted(level for level in levels if level < size)
    at, jobs = left[0]
    yield jobs, at
    for at, jobs in left[1:]:
        if jobs <= wanted[-1]:
            yield jobs, at
            while wanted and wanted[-1] >= jobs:
                wanted.pop()
            if not wanted:
                return


def _digest(scenario: Scenario) -> str:
    """A digest of all that a simulation begins with, and of the code that simulates it."""
    parts: Iterable[object] = (
        scenario.submissions, scenario.hosts, scenario.seed, scenario.begins_at,
        scenario.answers_today, scenario.aborts, scenario.finds_silent, scenario.slots,
    )  # fmt: skip
    digest = hashlib.blake2b(_digest_of_code(), digest_size=8)
    for part in parts:
        digest.update(repr(part).encode())
    return digest.hexdigest()


@cache
def _digest_of_code() -> bytes:
    digest = hashlib.blake2b()
    for package in (gridbot_client, gridbot_policies, gridbot_server, gridbot_simulator):
        for file in sorted(Path(package.__path__[0]).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.digest()


class Kept:
    """The file of all runs so far; a line that broke off with its process is dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            path.write_text(whole)
        self._runs = [Run.from_line(line) for line in whole.splitlines()]

    def find(self, experiment: Experiment, era: Era, scale: float, seed: int) -> Run | None:
        """Return the run of the same hosts, jobs and policies, if there is one."""
        wanted = (experiment.figure, experiment.name, era, scale, seed)
        named = [
            run
            for run in self._runs
            if (run.figure, run.name, run.era, run.scale, run.seed) == wanted
        ]
        if not named:
            return None
        digest = _digest(experiment.scenario(era, scale, seed))
        return next((run for run in named if run.input == digest), None)

    def add(self, run: Run) -> None:
        """Keep a run."""
        self._runs.append(run)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(run.line + "\n")
