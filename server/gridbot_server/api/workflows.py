"""Workflows: their runs, on scientists' machines, tell how they are; the console shows it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, NamedTuple, cast

from flask import Blueprint
from psycopg.types.json import Jsonb

from gridbot_client.protocol.workflows import SILENT_SECONDS
from gridbot_server.api.access import mine
from gridbot_server.api.groups import find_group
from gridbot_server.api.parameters import number
from gridbot_server.api.schema import answers, body_limit, json_body, query
from gridbot_server.errors import ObjectNotFound
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.matching.progress import NodesSoFar, workflow_progress
from gridbot_server.models.requests import ToldWorkflow
from gridbot_server.models.responses.workflows import (
    RunWord,
    Workflows,
    WorkflowState,
    WorkflowSummary,
)
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection

SQL = sql.load("workflows.sql")

blueprint = Blueprint("workflows", __name__, url_prefix="/api/v1")

_MOST_BYTES = 1 << 20  # all names and reasons in the longest characters
_GRAPH = ("why", "layers", "nodes", "edges", "edges_total")
_COUNTS = ("waiting", "running", "done", "failed", "futile")


class _WorkflowRow(NamedTuple):
    """A run as it told last."""

    id: int
    group: str
    owner: str
    kind: str
    name: str
    state: str
    seconds: float
    eta_seconds: float | None
    waiting: int
    running: int
    done: int
    failed: int
    futile: int
    told_at: datetime
    silent_seconds: float


@blueprint.put("/groups/<name>/workflow")
@auth.rule("user")
@body_limit(lambda _: _MOST_BYTES)
@json_body
@answers()
def tell_workflow(name: str, json: ToldWorkflow) -> WorkflowSummary:
    """Tell how the run of a workflow is whose BOTs are in a group of one's own."""
    told = json.model_dump()
    counts = {word: sum(layer[word] for layer in told["layers"]) for word in _COUNTS}
    graph = Jsonb({part: told.pop(part) for part in _GRAPH})
    with connection() as conn:
        group = find_group(conn, name, auth.key().owner_name)
        conn.execute(SQL["tell"], {**told, **counts, "group": group, "graph": graph})
        found = _summaries(conn, workflow=group)
    if not found:
        raise ObjectNotFound("this group has just gone with its last BOT")
    return found[0]


@blueprint.get("/workflows")
@auth.rule("user")
@query(limit=number("How many at most.", default=100, most=1000))
@answers()
def list_workflows(limit: int) -> Workflows:
    """List runs of workflows: those that go on first, then the latest."""
    with connection() as conn:
        return Workflows(workflows=_summaries(conn, mine=mine(), limit=limit))


@blueprint.get("/workflows/<int:workflow>")
@auth.rule("user")
@answers()
def show_workflow(workflow: int) -> WorkflowState:
    """Tell how the run of a workflow is, with its graph."""
    with connection() as conn:
        found = _summaries(conn, mine=mine(), workflow=workflow)
        graph = rows.fetch_value(conn, dict, SQL["graph"], {"workflow": workflow})
    if not found or graph is None:
        raise ObjectNotFound(f"there is no workflow {workflow}")
    return WorkflowState(**dict(found[0]), **cast(dict[str, Any], graph))


def _summaries(conn: Connection, **wanted: Any) -> list[WorkflowSummary]:
    values = {"mine": None, "workflow": None, "limit": 1, **wanted}
    return [_summary(row) for row in rows.fetch(conn, _WorkflowRow, SQL["list"], values)]


def _summary(row: _WorkflowRow) -> WorkflowSummary:
    is_silent = row.state == "running" and row.silent_seconds > SILENT_SECONDS
    so_far = NodesSoFar(
        state="silent" if is_silent else row.state,
        total=row.waiting + row.running + row.done + row.failed + row.futile,
        done=row.done,
        failed=row.failed,
        futile=row.futile,
        seconds=row.seconds,
        eta_seconds=None if is_silent else row.eta_seconds,
        silent_seconds=row.silent_seconds,
    )
    return WorkflowSummary(
        id=row.id,
        group=row.group,
        owner=row.owner,
        kind=cast(Literal["dag", "flow"], row.kind),
        name=row.name,
        state=cast(RunWord, so_far.state),
        verdict=workflow_progress(so_far),
        seconds=row.seconds,
        eta_seconds=so_far.eta_seconds,
        told_at=row.told_at,
        nodes_total=so_far.total,
        nodes_waiting=row.waiting,
        nodes_running=row.running,
        nodes_done=row.done,
        nodes_failed=row.failed,
        nodes_futile=row.futile,
    )
