"""What a workflow costs the engine of `gridbot dag`, by its shape; no server is asked.

Each node's jobs end at once, in the order of their submission.  The shape `montage` is that of the
workflow of this name among WfCommons' recipes: a wide layer, one that reads neighbours of it, two
nodes that wait for all of them, a second wide layer, and a few that gather.
"""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import click

from gridbot.dag.engine import actions, events
from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.language.model import Dag
from gridbot.dag.language.reader import Reading

from .harness.command import measurement
from .harness.installation import BenchFailed
from .harness.windows import Row

SMALL = 10  # times fewer nodes: what an event costs is not to grow with their number


@measurement()
@click.option("--nodes", type=click.IntRange(100), default=10_000, show_default=True,
              help="Nodes of each workflow.")  # fmt: skip
def dag(nodes: int) -> list[Row]:
    """CPU time per event and memory of the engine, for workflows of several shapes."""
    return [_row(shape, nodes) for shape in ("independent", "chain", "montage")]


def _row(shape: str, nodes: int) -> Row:
    whole, small = _read(shape, nodes), _read(shape, nodes // SMALL)
    count, seconds = _run(whole)
    few, less = _run(small)
    tracemalloc.start()
    _run(_read(shape, nodes))
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "shape": shape,
        "nodes": len(whole.nodes),
        "events": count,
        "us_per_event": 1e6 * seconds / count,
        "us_per_event_with_a_tenth": 1e6 * less / few,
        "peak_mb": memory / 1e6,
    }


def _read(shape: str, nodes: int) -> Dag:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "x.dag").write_text("\n".join(_lines(shape, nodes)))
        return Reading(base=Path(folder)).read(["x.dag"])


def _lines(shape: str, nodes: int) -> Iterator[str]:
    yield from (f"JOB N{n} job.sub\nRETRY N{n} 1" for n in range(nodes))
    if shape == "chain":
        yield from (f"PARENT N{n} CHILD N{n + 1}" for n in range(nodes - 1))
    elif shape == "montage":
        third = (nodes - 6) // 3
        first, second, last = (range(n * third, (n + 1) * third) for n in range(3))
        gather = 3 * third
        yield from (
            f"PARENT N{first[n]} N{first[(n + 1) % third]} CHILD N{second[n]}" for n in range(third)
        )
        yield f"PARENT {_names(second)} CHILD N{gather}"
        yield f"PARENT N{gather} CHILD N{gather + 1}"
        yield f"PARENT N{gather + 1} CHILD {_names(last)}"
        yield f"PARENT {_names(last)} CHILD N{gather + 2}"
        yield from (f"PARENT N{n} CHILD N{n + 1}" for n in range(gather + 2, nodes - 1))


def _names(numbers: range) -> str:
    return " ".join(f"N{number}" for number in numbers)


def _run(dag: Dag) -> tuple[int, float]:
    """Run a workflow to its end; events, and seconds of CPU."""
    began, count = time.process_time(), 0
    engine = DagEngine(dag)
    waiting = deque[events.RunEvent]([events.Began()])
    while waiting:
        count += 1
        for action in engine.apply(waiting.popleft()):
            if isinstance(action, actions.SubmitNode):
                node = action.node
                waiting += (
                    events.NodeSubmitted(node, 1, 1),
                    events.JobStarted(node, 0),
                    events.JobEnded(node, 0, 0),
                )
    spent = time.process_time() - began
    if engine.exit_code != 0:
        raise BenchFailed(f"the workflow ended with {engine.exit_code}: {engine.why}")
    return count, spent
