"""Volunteers: who has how much credit, teams, and consent."""

from __future__ import annotations

from typing import Annotated, Any, cast

from flask import Blueprint, request
from psycopg.rows import dict_row
from pydantic import AfterValidator, Field

from gridbot_server.api.access import number_argument
from gridbot_server.api.schema import json_body
from gridbot_server.errors import Conflict, ObjectNotFound
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.models.requests import Body
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection

SQL = sql.load("credit.sql")

blueprint = Blueprint("volunteers", __name__)

Document = dict[str, Any]


def _shown(name: str) -> str:
    if not name.isprintable() or name != name.strip():
        raise ValueError("expected printable characters without spaces at the ends")
    return name


TeamName = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_shown)]


class NewTeam(Body):
    """`POST /teams`."""

    name: TeamName


class VolunteerChange(Body):
    """`PATCH /volunteer`: only what is given changes; without a team one is in none."""

    team: TeamName | None = None
    public: bool = False


@blueprint.get("/api/v1/volunteer")
@auth.rule("join")
def volunteer() -> Document:
    """Show one's own credit, team and consent; an operator may ask for anybody's by name."""
    key = auth.key()
    name = request.args.get("name", key.owner_name)
    if name != key.owner_name and not key.is_operator:
        raise ObjectNotFound(f"there is no user {name[:100]!r} that you may see")
    with connection() as conn:
        return _volunteer(conn, name)


@blueprint.patch("/api/v1/volunteer")
@auth.rule("user")
@json_body
def change_volunteer(json: VolunteerChange) -> Document:
    """Join or leave a team, agree or disagree to be named in the statistics files."""
    key = auth.key()
    with connection() as conn, conn.transaction():
        return change(conn, key.owner, json)


@blueprint.get("/api/v1/teams")
@auth.rule("join")
def teams() -> Document:
    """List the teams, those with the most credit first."""
    values = {"limit": number_argument("limit", default=1000, most=10_000)}
    with connection() as conn:
        return {"teams": _rows(conn, "teams", values)}


@blueprint.post("/api/v1/teams")
@auth.rule("user")
@json_body
def add_team(json: NewTeam) -> tuple[Document, int]:
    """Found a team, and be in it.  Nobody founds two."""
    key = auth.key()
    with connection() as conn, conn.transaction():
        values = {"name": json.name, "founder": key.owner}
        row = conn.execute(SQL["add_team"], values).fetchone()
        if row is None:
            raise Conflict(f"there is a team {json.name} already, or you founded another one")
        conn.execute(SQL["set_team"], {"owner": key.owner, "team": row[0]})
        return _volunteer(conn, key.owner_name), 201


def change(conn: Connection, owner: int, change: VolunteerChange) -> Document:
    """Change what is given, within the caller's transaction; return the volunteer as it is then."""
    if "public" in change.model_fields_set:
        conn.execute(SQL["set_public"], {"owner": owner, "public": change.public})
    if "team" in change.model_fields_set:
        team = None if change.team is None else _team(conn, change.team)
        conn.execute(SQL["set_team"], {"owner": owner, "team": team})
    row = conn.execute(SQL["owner_name"], {"owner": owner}).fetchone()
    assert row is not None, "owners are never deleted"
    return _volunteer(conn, row[0])


def _team(conn: Connection, name: str) -> int:
    row = conn.execute(SQL["find_team"], {"name": name}).fetchone()
    if row is None:
        raise ObjectNotFound(f"there is no team {name}")
    return cast(int, row[0])


def _volunteer(conn: Connection, name: str) -> Document:
    rows = _rows(conn, "volunteer", {"name": name})
    if not rows:
        raise ObjectNotFound(f"there is no user {name[:100]!r}")
    return rows[0]


def _rows(conn: Connection, query: str, values: Document) -> list[Document]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(SQL[query], values).fetchall()
