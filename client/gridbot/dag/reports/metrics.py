"""The metrics of a run, written at its end."""

from __future__ import annotations

import json
from importlib.metadata import version

from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.engine.table import NodeStatus
from gridbot.dag.language.model import Kind


def metrics_text(
    engine: DagEngine, began_at: float, ended_at: float, dag_id: int, rescue: int, parent: int = -1
) -> str:
    """The whole file."""
    states = engine.table.nodes.values()
    document = {
        "client": "gridbot dag",
        "version": version("gridbot"),
        "start_time": began_at,
        "end_time": ended_at,
        "duration": round(ended_at - began_at, 3),
        "exitcode": engine.exit_code,
        "dagman_id": str(dag_id),
        "parent_dagman_id": "" if parent < 0 else str(parent),
        "rescue_dag_number": rescue,
    }
    groups = {
        "nodes": [s for s in states if s.node.kind not in (Kind.SUBDAG, Kind.SERVICE)],
        "dag_nodes": [s for s in states if s.node.kind is Kind.SUBDAG],
        "service_nodes": [s for s in states if s.node.kind is Kind.SERVICE],
    }
    ran = 0
    for name, members in groups.items():
        failed = sum(s.has_failed for s in members)
        done = sum(s.status is NodeStatus.DONE for s in members)
        ran += failed + done if name != "service_nodes" else 0
        document |= {name: len(members), f"{name}_failed": failed, f"{name}_succeeded": done}
    document |= {
        "jobs_submitted": engine.jobs_submitted,
        "jobs_succeeded": engine.jobs_succeeded,
        "jobs_failed": engine.jobs_failed,
        "total_nodes": engine.table.total,
        "total_nodes_run": ran,
        "DagStatus": int(engine.status),
    }
    return json.dumps(document, indent=4) + "\n"
