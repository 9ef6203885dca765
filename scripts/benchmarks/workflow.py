"""A workflow of `sleep`s, run by `gridbot dag run`, beside the least time that it can take.

The least time is the longer one of its critical path and of the sum of all running times, divided
by the slots.  An instance of WfCommons (WfFormat, versions 1.4 to 1.6: https://wfcommons.org/format)
gives its graph and its tasks' running times; their files are not made.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import click

from .harness.command import measurement, quick_option
from .harness.installation import BenchFailed, Installation, installation
from .harness.usage import cpu_seconds
from .harness.windows import Row

_SUBMIT = """executable = /bin/sleep
transfer_executable = false
arguments = $(seconds)
queue
"""
_PATIENCE_SECONDS = 600.0


@dataclass(frozen=True)
class Workload:
    """Running time of each node in seconds, and the nodes that each one waits for."""

    name: str
    seconds: Mapping[str, float]
    parents: Mapping[str, frozenset[str]]

    def least_seconds(self, slots: int) -> float:
        """Time below which no scheduler can run it on as many slots."""
        ends: dict[str, float] = {}
        for node in TopologicalSorter(self.parents).static_order():
            begins = max((ends[parent] for parent in self.parents[node]), default=0.0)
            ends[node] = begins + self.seconds[node]
        return max(max(ends.values()), sum(self.seconds.values()) / slots)

    def dag(self) -> Iterator[str]:
        """Lines of a DAG file."""
        for node, seconds in self.seconds.items():
            yield f"JOB {node} job.sub"
            yield f'VARS {node} seconds="{seconds:.3f}"'
        for node, parents in self.parents.items():
            if parents:
                yield f"PARENT {' '.join(sorted(parents))} CHILD {node}"


@measurement()
@click.argument("instance", required=False,
                type=click.Path(exists=True, dir_okay=False, path_type=Path))  # fmt: skip
@click.option("--nodes", type=click.IntRange(1), default=1000, show_default=True,
              help="Independent nodes, where no instance is given.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(0), default=1.0, show_default=True,
              help="Running time of each of them.")  # fmt: skip
@click.option("--scale", type=click.FloatRange(0), default=1.0, show_default=True,
              help="Factor for the running times of an instance.")  # fmt: skip
@click.option("--slots", type=click.IntRange(1), default=8, show_default=True,
              help="Slots of one client.")  # fmt: skip
@quick_option()
def workflow(
    instance: Path | None, nodes: int, seconds: float, scale: float, slots: int, quick: bool
) -> list[Row]:
    """A workflow of `sleep`s, run to its end, beside the least time that it can take.

    INSTANCE is a file in WfCommons' format.  Without one, the nodes are independent.
    """
    if instance is not None:
        load = read_instance(instance, scale)
    else:
        load = independent(4 if quick else nodes, 0.1 if quick else seconds)
    with installation() as place, place.session() as session:
        place.start_client("worker", "--cpus", str(slots))
        session.submit("true").wait(timeout=_PATIENCE_SECONDS)
        return [_run(place, load, slots)]


def independent(nodes: int, seconds: float) -> Workload:
    """Nodes that wait for nothing."""
    names = [f"N{number}" for number in range(nodes)]
    return Workload(
        "independent", dict.fromkeys(names, seconds), dict.fromkeys(names, frozenset[str]())
    )


def read_instance(path: Path, scale: float) -> Workload:
    """Read a file of WfCommons; BenchFailed names what it lacks."""
    try:
        document = json.loads(path.read_text())
        workload = _workload(document, scale)
        workload.least_seconds(1)
    except (KeyError, TypeError, ValueError, CycleError) as error:
        raise BenchFailed(f"{path} is no instance of WfCommons: {error!r}") from None
    if not workload.seconds:
        raise BenchFailed(f"{path} has no tasks")
    return workload


def _workload(document: Mapping[str, Any], scale: float) -> Workload:
    workflow = document["workflow"]
    tasks = workflow.get("specification", workflow)["tasks"]
    measured = workflow.get("execution", workflow)["tasks"]
    seconds = {task["id"]: scale * float(task["runtimeInSeconds"]) for task in measured}
    names = {task["id"]: f"N{number}" for number, task in enumerate(tasks)}
    return Workload(
        str(document["name"]),
        {names[task["id"]]: seconds[task["id"]] for task in tasks},
        {names[task["id"]]: frozenset(names[it] for it in task["parents"]) for task in tasks},
    )


def _run(place: Installation, load: Workload, slots: int) -> Row:
    with tempfile.TemporaryDirectory(dir=place.folder) as folder:
        Path(folder, "job.sub").write_text(_SUBMIT)
        Path(folder, "x.dag").write_text("\n".join(load.dag()) + "\n")
        before = cpu_seconds(place.servers())
        began = time.perf_counter()
        place.gridbot("dag", "run", "-usedagdir", str(Path(folder, "x.dag")))
        took = time.perf_counter() - began
        used = sum(cpu_seconds(place.servers()).values()) - sum(before.values())
    least = load.least_seconds(slots)
    return {
        "workflow": load.name,
        "nodes": len(load.seconds),
        "slots": slots,
        "seconds": took,
        "least_seconds": least,
        "to_least": took / least if least else None,
        "server_cpu_ms_per_node": 1000 * used / len(load.seconds),
    }
