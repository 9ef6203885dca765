"""Rescue DAGs: which nodes are done, for the next run."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.engine.table import NodeState, NodeStatus, Table
from gridbot.dag.language.model import Kind

VERSION = "2.1.0"
MOST = 999
_END = "<ENDLIST>"


def rescue_text(engine: DagEngine, at: float, reset_retries: bool, is_save: bool = False) -> str:
    """A rescue file, or a save point, which has the same form."""
    table = engine.table
    states = [state for state in table.nodes.values() if state.node.kind is not Kind.SERVICE]
    done = [state for state in states if _is_done(state)]
    failed = [state for state in states if state.has_failed]
    when = time.strftime("%m/%d/%Y %H:%M:%S", time.gmtime(at))
    kind = "Save point" if is_save else "Rescue DAG"
    head = [
        f"# {kind} file, created after running",
        f"#   the {engine.dag.files[0]} DAG file",
        f"# Created {when} UTC",
        f"# Rescue DAG version: {VERSION} (partial)",
        "#",
        f"# Total number of Nodes: {table.total}",
        f"# Nodes premarked DONE: {len(done)}",
    ]
    if not is_save:
        names = ",".join([*(state.name for state in failed), _END])
        head += [f"# Nodes that failed: {len(failed)}", f"#   {names}"]
    return "\n".join([*head, "", *_lines(table, states, reset_retries), ""])


def _is_done(state: NodeState) -> bool:
    return state.status is NodeStatus.DONE and state.node.kind is not Kind.FINAL


def _is_over(state: NodeState, table: Table) -> bool:
    """Whether a node has failed, and none of its children needs its success: all are WEAK."""
    weak = (state.name in table.nodes[child].node.weak_parents for child in state.node.children)
    return state.has_failed and bool(state.node.children) and all(weak)


def _lines(table: Table, states: list[NodeState], reset_retries: bool) -> Iterator[str]:
    for state in states:
        node = state.node
        if _is_done(state):
            yield f"DONE {state.name}"
        elif _is_over(state, table):
            yield "# Failed node with only weak child dependencies:"
            yield f"DONE {state.name}"
        if node.retries:
            left = node.retries if reset_retries else node.retries - state.retries
            if not reset_retries:
                yield f"# {state.retries} of {node.retries} retries already performed"
            unless = "" if node.unless_exit is None else f" UNLESS-EXIT {node.unless_exit}"
            yield f"RETRY {state.name} {left}{unless}"


def name_of(primary: str, is_multi: bool, number: int) -> str:
    """Name of a rescue file."""
    return f"{primary}{'_multi' if is_multi else ''}.rescue{number:03d}"


def numbers_of(primary: str, is_multi: bool) -> list[int]:
    """Numbers of the rescue files that are there."""
    base = Path(f"{primary}{'_multi' if is_multi else ''}")
    pattern = re.compile(re.escape(base.name) + r"\.rescue(\d{3})")
    folder = base.parent
    names = (entry.name for entry in folder.iterdir()) if folder.is_dir() else ()
    return sorted(int(found[1]) for name in names if (found := pattern.fullmatch(name)))


def set_aside(primary: str, is_multi: bool, above: int) -> None:
    """Rename the rescue files of higher numbers, so that they are not used."""
    for number in numbers_of(primary, is_multi):
        if number > above:
            path = Path(name_of(primary, is_multi, number))
            path.rename(f"{path}.old")
