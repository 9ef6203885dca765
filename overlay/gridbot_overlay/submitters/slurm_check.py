"""Compares a grid with what its Slurm cluster allows, and submits nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gridbot_overlay.decide.model import CheckResult, Grid, PilotShape
from gridbot_overlay.submitters import GridError, rendering
from gridbot_overlay.submitters.commands import Commands
from gridbot_overlay.submitters.site import Site

_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([KMGT])?\+?")
_ACCOUNT = re.compile(r"(?:-A|--account)(?:=|\s+)?(\S+)")
_PARTITION = re.compile(r"(?:-p|--partition)(?:=|\s+)?(\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The nodes of one partition that are alike."""

    name: str
    is_default: bool
    is_up: bool
    seconds: float  # of the longest job
    cpus: int
    memory_mb: int


def findings(grid: Grid, site: Site) -> list[CheckResult]:
    """Look at all of it, up to the first thing that the rest depends on."""
    try:
        version = site.commands.run("sbatch", "--version").strip()
        config = configuration(site.commands.run("scontrol", "show", "config"))
        known = partitions(
            site.commands.run("sinfo", "--noheader", "--exact", "--format=%P|%a|%l|%c|%m")
        )
    except GridError as error:
        return [CheckResult("slurm", False, str(error))]
    found = [CheckResult("slurm", True, f"{version}, cluster {config.get('ClusterName', '?')}")]
    found += _partition_findings(grid.shape, grid.directives, known)
    found.append(site.logs.check())
    found.append(_of_test(grid, site.commands))
    found += _of_accounting(grid, config, site.commands)
    return found


def configuration(printed: str) -> dict[str, str]:
    """Read what scontrol show config printed."""
    pairs = (line.partition("=") for line in printed.splitlines())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def partitions(printed: str) -> list[Partition]:
    """Read what sinfo --exact printed: a line for each sort of node of a partition."""
    rows = [line.split("|") for line in printed.splitlines() if line.count("|") == 4]
    return [
        Partition(
            name=name.rstrip("*"),
            is_default=name.endswith("*"),
            is_up=available == "up",
            seconds=seconds(limit),
            cpus=_number(cpus),
            memory_mb=_number(memory),
        )
        for name, available, limit, cpus, memory in rows
    ]


def seconds(limit: str) -> float:
    """Read a time limit: [days-][hours:]minutes:seconds, or a word for none."""
    found = _TIME.fullmatch(limit)
    if found is None:
        return math.inf
    days, hours, minutes, rest = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def _number(text: str) -> int:
    """Read a number as sinfo prints it: 2, 2+ or 1.5K."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise GridError(f"sinfo printed no number but {text[:40]!r}")
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2] or " "))


def chosen(directives: Sequence[str], known: Sequence[Partition]) -> list[Partition]:
    """Give the partitions that jobs with these options may go to."""
    named = _PARTITION.findall(" ".join(directives))
    names = set(named[-1].split(",")) if named else {p.name for p in known if p.is_default}
    return [partition for partition in known if partition.name in names]


def _partition_findings(
    shape: PilotShape, directives: Sequence[str], known: Sequence[Partition]
) -> Iterator[CheckResult]:
    usable = chosen(directives, known)
    if not usable:
        names = ", ".join(sorted({partition.name for partition in known}))
        text = f"no such partition, or no default; there are {names}; set --partition=NAME"
        yield CheckResult("partition", False, text)
        return
    problems = [(partition.name, problem(shape, partition)) for partition in usable]
    if good := sorted({name for name, text in problems if not text}):
        yield CheckResult("partition", True, f"{', '.join(good)}: has nodes for such pilots")
    else:
        yield CheckResult("partition", False, "; ".join(text for _, text in problems))


def problem(shape: PilotShape, partition: Partition) -> str:
    """Say what keeps a pilot of this shape from ever starting there; empty for nothing.

    With EnforcePartLimits=NO, Slurm's default, sbatch takes such pilots and never starts them.
    """
    name = f"partition {partition.name}"
    if not partition.is_up:
        return f"{name} is not up"
    if shape.walltime_seconds > partition.seconds:
        return (
            f"{name} allows {partition.seconds:g} s; walltime_seconds is {shape.walltime_seconds}"
        )
    if shape.cpus > partition.cpus:
        return f"{name} has nodes of {partition.cpus} CPUs; cpus is {shape.cpus}"
    if shape.memory_mb > partition.memory_mb:
        return f"{name} has nodes of {partition.memory_mb} MB; memory_mb is {shape.memory_mb}"
    return ""


def asked(shape: PilotShape) -> list[str]:
    """Render what sbatch is asked for a pilot."""
    return [
        f"--nodes={shape.nodes}",
        f"--ntasks={shape.nodes}",
        *(["--ntasks-per-node=1"] if shape.nodes > 1 else []),
        f"--cpus-per-task={shape.cpus}",
        f"--mem={shape.memory_mb}M",
        *([f"--gres=gpu:{shape.gpus}"] if shape.gpus else []),
        f"--time={math.ceil(shape.walltime_seconds / 60)}",
    ]


def _of_test(grid: Grid, commands: Commands) -> CheckResult:
    """Let sbatch say what it thinks of the real options."""
    command = ["sbatch", "--test-only", *asked(grid.shape)]
    try:
        command += rendering.words(grid.directives)
        code, _, said = commands.ended(*command, stdin="#!/bin/sh\n")
    except GridError as error:
        return CheckResult("sbatch --test-only", False, str(error))
    return CheckResult("sbatch --test-only", code == 0, said.replace("sbatch: ", "").strip())


def _of_accounting(grid: Grid, config: dict[str, str], commands: Commands) -> Iterator[CheckResult]:
    """Compare with the limits of our associations, where the cluster enforces any."""
    if "limits" not in config.get("AccountingStorageEnforce", ""):
        return
    fields = "account,partition,maxjobs,maxsubmit,maxwall"
    try:
        user = commands.run("id", "-un").strip()
        where = (f"user={user}", f"cluster={config.get('ClusterName', '')}")
        listing = ("sacctmgr", "--noheader", "--parsable2", "show", "assoc")
        printed = commands.run(*listing, *where, f"format={fields}")
    except GridError as error:
        yield CheckResult("accounting", False, str(error))
        return
    rows = [line.split("|") for line in printed.splitlines() if line.count("|") == 4]
    if not rows:
        yield CheckResult("accounting", False, f"user {user} has no account; see sacctmgr add user")
    named = _ACCOUNT.findall(" ".join(grid.directives))[-1:]
    for row in rows:
        if not named or row[0] in named:
            yield association(grid, row)


def association(grid: Grid, row: Sequence[str]) -> CheckResult:
    """Compare the grid with one line: account, partition, MaxJobs, MaxSubmit, MaxWall."""
    account, partition, jobs, submitted, wall = row
    what = f"account {account}" + (f" in {partition}" if partition else "")
    limits = grid.limits
    if jobs and int(jobs) < limits.max_running:
        text = f"MaxJobs is {jobs}; limits.max_running is {limits.max_running}"
    elif submitted and int(submitted) < limits.max_running + limits.max_queued:
        wanted = limits.max_running + limits.max_queued
        text = f"MaxSubmit is {submitted}; limits.max_running + max_queued is {wanted}"
    elif wall and grid.shape.walltime_seconds > seconds(wall):
        text = f"MaxWall is {wall}; walltime_seconds is {grid.shape.walltime_seconds}"
    else:
        return CheckResult(what, True, "its limits leave room for this grid's")
    return CheckResult(what, False, text)
