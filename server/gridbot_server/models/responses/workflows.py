"""Workflows: how the runs of DAGs and flows are, as they told last."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from gridbot_server.models.responses import ResponseModel

NodeWord = Literal["waiting", "running", "done", "failed", "futile"]
RunWord = Literal["running", "done", "failed", "interrupted", "silent"]


class WorkflowSummary(ResponseModel):
    """A run in a list."""

    id: int
    group: str
    """The group of its BOTs, with which it goes."""

    owner: str
    kind: Literal["dag", "flow"]
    name: str
    state: RunWord
    """`interrupted` while its jobs go on without it; `silent` if it has not said so, and was not
    heard of for three minutes."""

    verdict: str
    """How far it is, in a sentence."""

    seconds: float
    """Since it began, when it told last."""

    eta_seconds: float | None
    told_at: datetime
    nodes_total: int
    nodes_waiting: int
    nodes_running: int
    nodes_done: int
    nodes_failed: int
    nodes_futile: int
    """Nodes that cannot run, because one before them failed."""


class Workflows(ResponseModel):
    """`GET /workflows`: those that go on first, then the latest."""

    workflows: list[WorkflowSummary]


class WorkflowLayer(ResponseModel):
    """Nodes of which the longest way from a beginning is of the same length."""

    waiting: int
    running: int
    done: int
    failed: int
    futile: int


class WorkflowNode(ResponseModel):
    """A node that was told."""

    name: str
    state: NodeWord
    layer: int
    tries: int
    why: str
    """What it waits for, or why it failed; "" if there is nothing to say."""

    jobs: int
    """Its jobs at the server, until now."""

    jobs_running: int
    jobs_waiting: int
    bot: int | None
    """The BOT of its jobs; null: none is at the server."""

    job: int | None
    """In that BOT: the number of a job that failed, else of its first one."""


class WorkflowState(WorkflowSummary):
    """`GET /workflows/ID`."""

    why: str
    """Why it ends early; "" if it does not."""

    layers: list[WorkflowLayer]
    """Of all nodes; those beyond the hundredth layer are counted in that."""

    nodes: list[WorkflowNode]
    """At most 200: those that failed or run come before others."""

    edges: list[tuple[int, int]]
    """Which of `nodes` comes after which, as places in that list; 1000 at most."""

    edges_total: int
    """Edges between `nodes`."""
