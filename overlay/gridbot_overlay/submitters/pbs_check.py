"""Compares a grid with what its PBS server's queue allows, and submits nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from gridbot_overlay.decide.model import CheckResult, Grid
from gridbot_overlay.submitters import GridError, pbs_reports, rendering
from gridbot_overlay.submitters.commands import Commands
from gridbot_overlay.submitters.site import Site

_QUEUE = re.compile(r"^Queue:\s*(\S+)\s*$")
_SERVER = re.compile(r"^Server:\s*(\S+)\s*$")
_CLOCK = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+)")
_SIZE = re.compile(r"(\d+)([kmgt]?)b?", re.I)
_MEGABYTES = {"": 2**-20, "k": 2**-10, "m": 1, "g": 2**10, "t": 2**20}


def findings(grid: Grid, site: Site) -> list[CheckResult]:
    """Look at all of it, up to the first thing that the rest depends on."""
    try:
        queues = dict(pbs_reports.records(site.commands.run("qstat", "-Q", "-f"), _QUEUE))
        name = chosen(grid.directives) or _default(site.commands)
    except GridError as error:
        return [CheckResult("pbs", False, str(error))]
    found = [CheckResult("pbs", True, f"it answers; queues: {', '.join(sorted(queues)) or 'none'}")]
    if name and name not in queues:
        found.append(CheckResult("queue", False, f"there is no queue {name}"))
    elif name:
        found += of_queue(grid, name, queues[name])
    else:
        found.append(CheckResult("queue", False, "the server has no default queue; set -q NAME"))
    found.append(site.logs.check())
    return found


def chosen(directives: Sequence[str]) -> str:
    """Name the queue that the operator's options name; empty for the server's default."""
    words = rendering.words(tuple(directives))
    named = [after for before, after in pairwise(words) if before == "-q"]
    return named[-1].partition("@")[0] if named else ""


def _default(commands: Commands) -> str:
    servers = pbs_reports.records(commands.run("qstat", "-B", "-f"), _SERVER)
    return next((values.get("default_queue", "") for _, values in servers), "")


def of_queue(grid: Grid, name: str, queue: Mapping[str, str]) -> Iterator[CheckResult]:
    """Compare the grid with one queue."""
    shape, what = grid.shape, f"queue {name}"
    asked: dict[str, tuple[int, Callable[[str], float], str, str]] = {
        "walltime": (shape.walltime_seconds, seconds, "s", "walltime_seconds"),
        "ncpus": (shape.all_cpus, float, "CPUs", "cpus"),
        "mem": (shape.nodes * shape.memory_mb, megabytes, "MB", "memory_mb"),
    }
    problems = [
        f"{word} is off" for word in ("enabled", "started") if queue.get(word, "True") == "False"
    ]
    for resource, (wanted, read, unit, setting) in asked.items():
        text = queue.get(f"resources_max.{resource}", "")
        if text and wanted > read(text):
            problems.append(f"it allows {read(text):g} {unit}; {setting} is {wanted}")
    yield CheckResult(what, not problems, "; ".join(problems) or "it takes such pilots")


def seconds(text: str) -> float:
    """Read a duration: [[hours:]minutes:]seconds."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        return math.inf
    hours, minutes, rest = (int(part or 0) for part in found.groups())
    return (hours * 60 + minutes) * 60 + rest


def megabytes(text: str) -> float:
    """Read a size: a number with an optional unit of a power of 1024."""
    found = _SIZE.fullmatch(text)
    return int(found[1]) * _MEGABYTES[found[2].lower()] if found else math.inf
