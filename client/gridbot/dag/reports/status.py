"""The node status file: ClassAds that tell the state of the DAG and of each node."""

from __future__ import annotations

import time
from collections.abc import Iterator

from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.engine.table import NodeState, NodeStatus

_WORDS = {3: "STATUS_SUBMITTED", 5: "STATUS_DONE", 6: "STATUS_ERROR"}
_NODE_WORDS = {status: f"STATUS_{status.name}" for status in NodeStatus}


def status_text(engine: DagEngine, at: float, next_update: float) -> str:
    """The whole file; `next_update` is 0 at the end."""
    return "".join([_dag_ad(engine, at), *_node_ads(engine), _end_ad(at, next_update)])


def _state(engine: DagEngine) -> tuple[int, str]:
    if not engine.is_over:
        return 3, ""
    if engine.exit_code == 0 and engine.table.done():
        return 5, " (success)"
    return (5, " (success)") if not engine.table.total else (6, " (failed)")


def _dag_ad(engine: DagEngine, at: float) -> str:
    number, more = _state(engine)
    files = ",\n".join(f"    {_quoted(file)}" for file in engine.dag.files)
    held = sum(len(state.held) for state in engine.table.nodes.values())
    sums = engine.table.sums(engine.ready)
    totals = "".join(
        f"  Nodes{name} = {sums[name]};\n"
        for name in (
            "Total", "Done", "Pre", "Queued", "Post", "Ready", "Unready", "Futile", "Failed",
        )
    )  # fmt: skip
    return (
        '[\n  Type = "DagStatus";\n'
        f"  DagFiles = {{\n{files}\n  }};\n"
        f"  Timestamp = {int(at)}; /* {_quoted(time.ctime(at))} */\n"
        f'  DagStatus = {number}; /* "{_WORDS[number]}{more}" */\n'
        f"{totals}"
        f"  JobProcsHeld = {held};\n"
        f"  JobProcsIdle = {engine.table.idle_jobs};\n]\n"
    )


def _node_ads(engine: DagEngine) -> Iterator[str]:
    for state in engine.table.nodes.values():
        if not state.node.counts:
            continue
        yield (
            '[\n  Type = "NodeStatus";\n'
            f"  Node = {_quoted(state.name)};\n"
            f'  NodeStatus = {int(state.status)}; /* "{_NODE_WORDS[state.status]}" */\n'
            f"  StatusDetails = {_quoted(_details(state))};\n"
            f"  RetryCount = {state.retries};\n"
            f"  JobProcsQueued = {len(state.queued)};\n"
            f"  JobProcsHeld = {len(state.held)};\n]\n"
        )


def _details(state: NodeState) -> str:
    if state.status is NodeStatus.SUBMITTED:
        return "not_idle" if state.running else "idle"
    return state.details


def _end_ad(at: float, next_update: float) -> str:
    return (
        '[\n  Type = "StatusEnd";\n'
        f"  EndTime = {int(at)}; /* {_quoted(time.ctime(at))} */\n"
        f"  NextUpdate = {int(next_update)};\n]\n"
    )


def _quoted(text: str) -> str:
    """A string of a ClassAd; what is beyond ASCII is written in octal, byte by byte."""
    pieces = []
    for byte in text.encode():
        if byte in (0x22, 0x5C):
            pieces.append(f"\\{chr(byte)}")
        elif 32 <= byte < 127:
            pieces.append(chr(byte))
        else:
            pieces.append(f"\\{byte:03o}")
    return f'"{"".join(pieces)}"'
