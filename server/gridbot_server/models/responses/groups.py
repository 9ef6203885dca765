"""Groups of BOTs: their state, and lines of their results."""

from __future__ import annotations

from datetime import datetime

from gridbot_server.models.responses import ResponseModel
from gridbot_server.models.responses.results import ResultLine


class GroupState(ResponseModel):
    """A label over BOTs of one owner."""

    name: str
    owner: str
    share: float | None
    """Of its owner's hosts, beside other groups with a share; null: its BOTs count as others."""

    created_at: datetime
    results: int
    """The last `n` of its results."""

    bots: int
    bots_unfinished: int
    """BOTs that are open, running or held."""

    bots_held: int
    """Those of them that are held."""

    jobs_total: int
    jobs_done: int
    jobs_failed: int
    jobs_cancelled: int
    """Jobs that were cancelled one by one, among those that failed."""

    jobs_left: int
    """Jobs without an outcome, also of BOTs that were cancelled."""


class Groups(ResponseModel):
    """`GET /groups`: the latest first."""

    groups: list[GroupState]


class GroupResultLine(ResultLine):
    """A line of `GET /groups/NAME/results`: a finished job; `n` counts in the group."""

    bot: int
    """The BOT that it is of."""
