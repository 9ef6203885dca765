"""Compares a grid with what its Grid Engine cell allows, and submits nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from gridbot_overlay.decide.model import CheckResult, Grid
from gridbot_overlay.submitters import GridError
from gridbot_overlay.submitters.commands import Commands
from gridbot_overlay.submitters.site import Site

_CLOCK = re.compile(r"(?:(\d+):)?(?:(\d+):)?(\d+)")


def findings(grid: Grid, asked: Sequence[str], site: Site) -> list[CheckResult]:
    """Look at all of it, up to the first thing that the rest depends on."""
    try:
        version = site.commands.run("qstat", "-help").partition("\n")[0].strip()
        names = site.commands.run("qconf", "-sql").split()
        queues = {name: values(site.commands.run("qconf", "-sq", name)) for name in names}
        config = values(site.commands.run("qconf", "-sconf"))
    except GridError as error:
        return [CheckResult("grid engine", False, str(error))]
    found = [CheckResult("grid engine", True, version)]
    found.append(of_queues(grid, queues))
    found += of_limits(grid, config)
    found.append(site.logs.check())
    found.append(_verified(asked, site.commands))
    return found


def values(printed: str) -> dict[str, str]:
    """Read what qconf prints of one thing: a name and a value on each line."""
    pairs = (line.split(None, 1) for line in printed.replace("\\\n", " ").splitlines())
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def seconds(limit: str) -> float:
    """Read a time limit: [hours:[minutes:]]seconds, or a word for none."""
    # A queue may name other limits for some of its hosts: 01:00:00,[host=02:00:00]
    found = _CLOCK.fullmatch(limit.partition(",")[0])
    if found is None:
        return math.inf
    parts = [int(part) for part in found.groups() if part is not None]
    return float(sum(part * 60**power for power, part in enumerate(reversed(parts))))


def of_queues(grid: Grid, queues: Mapping[str, Mapping[str, str]]) -> CheckResult:
    """Find the queues whose time limit lets a pilot live as long as it is meant to."""
    longest = {name: seconds(queue.get("h_rt", "INFINITY")) for name, queue in queues.items()}
    wanted = grid.shape.walltime_seconds
    good = sorted(name for name, limit in longest.items() if limit >= wanted)
    if good:
        return CheckResult("queues", True, f"{', '.join(good)}: h_rt is long enough")
    limits = ", ".join(f"{name} {limit:g} s" for name, limit in sorted(longest.items()))
    text = f"no queue runs a job for walltime_seconds = {wanted}; there are {limits or 'none'}"
    return CheckResult("queues", False, text)


def of_limits(grid: Grid, config: Mapping[str, str]) -> Iterator[CheckResult]:
    """Compare with the cell's limits on jobs, where 0 means none."""
    running = grid.limits.max_running
    for name in ("max_aj_instances", "max_u_jobs", "max_jobs"):
        limit = int(config.get(name, "0"))
        if 0 < limit < running:
            yield CheckResult(name, False, f"it is {limit}; limits.max_running is {running}")


def _verified(asked: Sequence[str], commands: Commands) -> CheckResult:
    """Let qsub say whether a pilot could start in an empty cell."""
    command = ("qsub", "-w", "v", "-N", "check", "-S", "/bin/sh", *asked)
    try:
        code, stdout, stderr = commands.ended(*command, stdin="#!/bin/sh\n")
    except GridError as error:
        return CheckResult("qsub -w v", False, str(error))
    return CheckResult("qsub -w v", code == 0, (stdout + stderr).strip())
