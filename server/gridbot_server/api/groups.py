"""Groups: a label over BOTs, with one stream of results, one way to cancel them, one share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flask import Blueprint, Response

from gridbot_server.api.access import mine
from gridbot_server.api.content import reader
from gridbot_server.api.parameters import Parameter, number
from gridbot_server.api.results import AFTER, LIMIT, WAIT, ResultRow, result_pages, result_stream
from gridbot_server.api.schema import JSON_LINES, answers, json_body, query, sends
from gridbot_server.errors import ObjectNotFound
from gridbot_server.http import auth
from gridbot_server.http.long_poll import MOST_SECONDS, wait_for_news
from gridbot_server.http.services import connection
from gridbot_server.models.requests import GroupChange
from gridbot_server.models.responses.groups import GroupResultLine, Groups, GroupState
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection

SQL = sql.load("groups.sql")

blueprint = Blueprint("groups", __name__, url_prefix="/api/v1/groups")

_OWNER = Parameter("Whose group it is; for operators.", {"type": "string"})


@dataclass(frozen=True, slots=True)
class _GroupResultRow(ResultRow):
    """An outcome of a BOT of the group, with one of its outputs, or with none."""

    bot: int

    def told(self) -> Mapping[str, Any]:
        """Whose outcome it is."""
        return {"bot": self.bot}


@blueprint.get("")
@auth.rule("user")
@query(limit=number("How many at most.", default=1000, most=10_000))
@answers()
def list_groups(limit: int) -> Groups:
    """List groups, the latest first."""
    with connection() as conn:
        return Groups(groups=_summaries(conn, mine=mine(), limit=limit))


@blueprint.get("/<name>")
@auth.rule("user")
@query(wait=number("Seconds to wait for its end.", default=0, most=MOST_SECONDS), owner=_OWNER)
@answers()
def show_group(name: str, wait: int, owner: str | None) -> GroupState:
    """Tell about one group; with `wait`, once no BOT of it goes on, or so many seconds are over."""
    with connection() as conn:
        group = find_group(conn, name, owner)
        goes_on = wait and rows.has_row(conn, SQL["goes_on"], {"group": group})
    if goes_on:
        wait_for_news(-group, wait, reader())
    with connection() as conn:
        return _summary(conn, group)


@blueprint.get("/<name>/results")
@auth.rule("user")
@query(after=AFTER, limit=LIMIT, wait=WAIT, owner=_OWNER)
@sends(JSON_LINES, model=GroupResultLine)
def stream_group_results(
    name: str, after: int, limit: int, wait: int, owner: str | None
) -> Response:
    """Stream the finished jobs of all BOTs of a group, in the order in which they finished.

    `n` counts in the group, and never changes: `after` goes on behind it, also when other BOTs
    have come into the group since.  Else as the results of one BOT, without events.
    """
    with connection() as conn:
        group = find_group(conn, name, owner)
        last = _last(conn, group)
        is_done = not rows.has_row(conn, SQL["goes_on"], {"group": group})
    if wait and last <= after and not is_done:
        wait_for_news(-group, wait, reader())
    of = {"group": group, "last": last}
    return result_stream(result_pages(_GroupResultRow, SQL["results"], of, after, limit))


@blueprint.post("/<name>/cancel")
@auth.rule("user")
@query(owner=_OWNER)
@answers()
def cancel_group(name: str, owner: str | None) -> GroupState:
    """Cancel the BOTs that are in a group now; those that have ended stay as they are."""
    with connection() as conn:
        group = find_group(conn, name, owner)
        conn.execute(SQL["cancel"], {"group": group})
        return _summary(conn, group)


@blueprint.patch("/<name>")
@auth.rule("user")
@query(owner=_OWNER)
@json_body
@answers()
def change_group(name: str, json: GroupChange, owner: str | None) -> GroupState:
    """Give a group a share of its owner's hosts, or take it away."""
    with connection() as conn, conn.transaction():
        group = find_group(conn, name, owner)
        if "share" in json.model_fields_set:
            conn.execute(SQL["tell_dispatch"], {"group": group})
            conn.execute(SQL["set_share"], {"group": group, "share": json.share})
        return _summary(conn, group)


def find_group(conn: Connection, name: str, owner: str | None) -> int:
    """Return a group that this key may touch: the caller's own, or for operators anybody's."""
    key = auth.key()
    wanted = key.owner_name if owner is None else owner
    found = rows.fetch_value(conn, int, SQL["find"], {"name": name, "owner": wanted})
    if found is None or not (key.is_operator or wanted == key.owner_name):
        raise ObjectNotFound(f"there is no group {name[:100]!r}")
    return found


def _last(conn: Connection, group: int) -> int:
    return rows.fetch_value(conn, int, SQL["last_outcome"], {"group": group}) or 0


def _summary(conn: Connection, group: int) -> GroupState:
    found = _summaries(conn, group=group)
    if not found:
        raise ObjectNotFound("this group has just gone with its last BOT")
    return found[0]


def _summaries(conn: Connection, **wanted: Any) -> list[GroupState]:
    values = {"mine": None, "group": None, "limit": 1, **wanted}
    return rows.read(conn, GroupState, SQL["summaries"], values)
