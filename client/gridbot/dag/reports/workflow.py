"""What the server is told of a run, for its page in the console: bounded for graphs of any size."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.engine.table import NodeState, NodeStatus, ScriptPhase, Table
from gridbot.dag.language.model import DagNode, Kind
from gridbot_client.protocol.workflows import (
    MAX_EDGES,
    MAX_LAYERS,
    MAX_NAME_CHARACTERS,
    MAX_NODES,
    MAX_SECONDS,
    MAX_WHY_CHARACTERS,
)
from gridbot_client.terminal import printable

Document = dict[str, Any]

_WORDS = {
    NodeStatus.NOT_READY: "waiting",
    NodeStatus.READY: "waiting",
    NodeStatus.PRERUN: "running",
    NodeStatus.SUBMITTED: "running",
    NodeStatus.POSTRUN: "running",
    NodeStatus.DONE: "done",
    NodeStatus.ERROR: "failed",
    NodeStatus.FUTILE: "futile",
}
# Which nodes are told first, if they are too many.
_ORDER = ("failed", "running", "waiting", "futile", "done")
_MOST_NAMED = 3  # of the nodes that one waits for


class JobPlaces(Protocol):
    """Where the jobs of nodes are at the server."""

    def place(self, node: str, process: int) -> tuple[int, int] | None:
        """BOT and number of a job; None if it is not there."""


@dataclass(frozen=True)
class RunTimes:
    """Seconds since a run began, and how long it takes from now on, if that can be said."""

    seconds: float
    eta_seconds: float | None

    @classmethod
    def of(cls, engine: DagEngine, began_at: float) -> RunTimes:
        """Those of now: all nodes are taken to last as long as those that are done."""
        elapsed = min(max(0.0, time.time() - began_at), MAX_SECONDS)
        done = engine.table.done()
        if engine.is_over or not done:
            return cls(elapsed, None)
        left = elapsed * (engine.table.total - done) / done
        return cls(elapsed, left if left <= MAX_SECONDS else None)


class Layers:
    """How far each node is from the beginnings of its graph, which may grow."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}

    def of(self, table: Table) -> Mapping[str, int]:
        """The layers of all nodes, from 0 on; those of a circle are in the first."""
        new = [state.node for name, state in table.nodes.items() if name not in self._of]
        self._place(new)
        return self._of

    def _place(self, new: Sequence[DagNode]) -> None:
        names = {node.name for node in new}
        children: dict[str, list[DagNode]] = {}
        waiting: Counter[str] = Counter()
        for node in new:
            for name in names.intersection(_parents(node)):
                children.setdefault(name, []).append(node)
                waiting[node.name] += 1
        ready = [node for node in new if not waiting[node.name]]
        while ready:
            node = ready.pop()
            above = [self._of[name] for name in _parents(node)]
            self._of[node.name] = 1 + max(above, default=-1)
            for child in children.get(node.name, ()):
                waiting[child.name] -= 1
                if not waiting[child.name]:
                    ready.append(child)
        deepest = max(self._of.values(), default=0)
        for node in new:
            self._of.setdefault(node.name, 0)
            if node.kind is Kind.FINAL:  # comes after all, and has no parents
                self._of[node.name] = deepest + 1


def document(
    kind: str, name: str, state: str, engine: DagEngine, times: RunTimes, layers: Layers,
    places: JobPlaces,
) -> Document:  # fmt: skip
    """The body of `PUT /groups/NAME/workflow`."""
    table = engine.table
    states = [one for one in table.nodes.values() if one.node.counts]
    depths = {name: min(n, MAX_LAYERS - 1) for name, n in layers.of(table).items()}
    counts: dict[int, Counter[str]] = {}
    for one in states:
        counts.setdefault(depths[one.name], Counter())[_WORDS[one.status]] += 1
    chosen = _chosen(states)
    numbers = {one.name: number for number, one in enumerate(chosen)}
    edges = [
        [numbers[parent], number]
        for number, one in enumerate(chosen)
        for parent in _parents(one.node)
        if parent in numbers
    ]
    return {
        "kind": kind,
        "name": _line(name, MAX_NAME_CHARACTERS) or "workflow",
        "state": state,
        "why": _line(engine.why, MAX_WHY_CHARACTERS),
        "seconds": times.seconds,
        "eta_seconds": times.eta_seconds,
        "layers": [dict(counts.get(n, {})) for n in range(max(counts, default=-1) + 1)],
        "nodes": [_node(one, table, depths[one.name], places) for one in chosen],
        "edges": edges[:MAX_EDGES],
        "edges_total": len(edges),
    }


def _parents(node: DagNode) -> tuple[str, ...]:
    return (*node.parents, *node.weak_parents)


def _chosen(states: Iterable[NodeState]) -> list[NodeState]:
    """The nodes that are told one by one, in the order of the graph."""
    by_word: dict[str, list[tuple[int, NodeState]]] = {word: [] for word in _ORDER}
    for place, state in enumerate(states):
        some = by_word[_WORDS[state.status]]
        if len(some) < MAX_NODES:
            some.append((place, state))
    first = [item for word in _ORDER for item in by_word[word]][:MAX_NODES]
    return [state for _, state in sorted(first, key=lambda item: item[0])]


def _node(state: NodeState, table: Table, layer: int, places: JobPlaces) -> Document:
    # One that begins anew has no job yet, and its last ones are over.
    place = places.place(state.name, _process_to_show(state)) if state.jobs else None
    bot, job = place or (None, None)
    return {
        "name": _line(state.name, MAX_NAME_CHARACTERS),
        "state": _WORDS[state.status],
        "layer": layer,
        "tries": state.attempts,
        "why": _line(_why(state, table), MAX_WHY_CHARACTERS),
        "jobs": state.jobs,
        "jobs_running": len(state.running),
        "jobs_waiting": len(state.idle),
        "bot": bot,
        "job": job,
    }


def _process_to_show(state: NodeState) -> int:
    """The first of a node's jobs; if it failed, of those that failed, else of those removed."""
    if state.status is not NodeStatus.ERROR:
        return 0
    failed = [process for process, code in state.codes.items() if code]
    removed = (process for process in range(state.jobs) if process not in state.codes)
    return min(failed) if failed else next(removed, 0)


def _why(state: NodeState, table: Table) -> str:
    """What a node waits for, what it does beside its jobs, or why it failed."""
    if state.status is NodeStatus.NOT_READY:
        return _waits_for(state, table)
    if state.status is NodeStatus.READY:
        return "waits for its turn"
    if state.script:
        runs = "runs" if state.phase is ScriptPhase.RUNS else "waits for its turn"
        return f"its {state.script} script {runs}"
    if state.held:
        return "its BOT is held"
    return state.details


def _waits_for(state: NodeState, table: Table) -> str:
    ended = (NodeStatus.DONE, NodeStatus.ERROR, NodeStatus.FUTILE)
    left = [name for name in _parents(state.node) if table.nodes[name].status not in ended]
    more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
    return f"waits for {', '.join(left[:_MOST_NAMED])}{more}" if left else ""


def _line(text: str, most: int) -> str:
    """The first line of a text, cut where it is long."""
    line = printable(text.strip().split("\n", 1)[0])
    return line if len(line) <= most else f"{line[: most - 1]}…"
