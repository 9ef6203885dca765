"""A workflow's page: how far its run is, what failed and runs and waits, and its graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gridbot_server.api.schema import call
from gridbot_server.api.workflows import show_workflow
from gridbot_server.console import graph
from gridbot_server.console.blueprint import blueprint, live
from gridbot_server.http import auth
from gridbot_server.models.responses.workflows import WorkflowNode, WorkflowState

_MOST_LISTED = 40  # nodes that run or wait; those that failed are listed as far as they were told
_TONES = {"failed": "bad", "interrupted": "warn", "silent": "warn"}


@blueprint.get("/workflows/<int:workflow>")
@auth.rule("console user")
@live("workflow.html", seconds=2.0)
def workflow_page(workflow: int) -> dict[str, Any]:
    """Show the run of a workflow."""
    run: WorkflowState = call(show_workflow, workflow=workflow)
    return {
        "title": f"{run.verdict.partition(',')[0]} · {run.name}",
        "run": run,
        "tone": "bad" if run.nodes_failed else _TONES.get(run.state, "good"),
        "parts": graph.node_parts(run),
        "failed": _in_state(run, "failed"),
        "working": _in_state(run, "running")[:_MOST_LISTED],
        "waiting": _in_state(run, "waiting")[:_MOST_LISTED],
        "graph": graph.drawing(run.nodes, run.edges),
        "layers": [
            (number, layer, graph.layer_parts(layer))
            for number, layer in enumerate(run.layers, start=1)
        ],
    }


def _in_state(run: WorkflowState, state: str) -> Sequence[WorkflowNode]:
    return [node for node in run.nodes if node.state == state]
