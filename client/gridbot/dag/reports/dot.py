"""A picture of the graph for Graphviz."""

from __future__ import annotations

import time
from pathlib import Path

from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.engine.table import NodeState, NodeStatus
from gridbot.dag.language.model import DotFile

_SHAPES = {
    NodeStatus.NOT_READY: ("I", "ellipse", ""),
    NodeStatus.READY: ("I", "ellipse", ""),
    NodeStatus.FUTILE: ("I", "ellipse", ""),
    NodeStatus.PRERUN: ("Pre", "ellipse", " style=dotted"),
    NodeStatus.SUBMITTED: ("R", "ellipse", " peripheries=2"),
    NodeStatus.POSTRUN: ("Post", "ellipse", " style=dotted"),
    NodeStatus.DONE: ("Done", "ellipse", " style=bold"),
    NodeStatus.ERROR: ("E", "box", ""),
}


def dot_text(engine: DagEngine, asked: DotFile, base: Path, at: float) -> str:
    """The whole file."""
    lines = ["digraph DAG {", f'    label="DAGMan Job status at {time.ctime(at)}";', ""]
    if asked.include and (base / asked.include).is_file():
        lines += ["// Beginning of commands included from the file named by INCLUDE"]
        lines += (base / asked.include).read_text(encoding="utf-8").splitlines()
        lines += ["// End of them"]
    shown = [state for state in engine.table.nodes.values() if state.node.counts]
    lines += map(_node, shown)
    lines.append("")
    lines += (
        f"    {_quoted(state.name)} -> {_quoted(child)};"
        for state in shown
        for child in state.node.children
    )
    return "\n".join([*lines, "}", ""])


def _node(state: NodeState) -> str:
    letter, shape, more = _SHAPES[state.status]
    label = _quoted(f"{state.name} ({letter})")
    return f"    {_quoted(state.name)} [shape={shape} label={label}{more}];"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'


def path_for(asked: DotFile, base: Path) -> Path:
    """Where the picture goes: without OVERWRITE, to the first free number behind the name."""
    path = base / asked.path
    if asked.overwrite:
        return path
    number = 0
    while (numbered := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return numbered
