"""Volunteers: who has how much credit, teams, and consent."""

from __future__ import annotations

from http import HTTPStatus

from flask import Blueprint

from gridbot_server.api.parameters import Parameter, number
from gridbot_server.api.schema import answers, json_body, query
from gridbot_server.errors import Conflict, ObjectNotFound
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.models.requests import NewTeam, VolunteerChange
from gridbot_server.models.responses.volunteers import Team, Teams, Volunteer
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection

SQL = sql.load("credit.sql")

blueprint = Blueprint("volunteers", __name__, url_prefix="/api/v1")


@blueprint.get("/volunteer")
@auth.rule("join")
@query(name=Parameter("Somebody else, for operators.", {"type": "string"}))
@answers(errors=(HTTPStatus.NOT_FOUND,))
def show_volunteer(name: str | None) -> Volunteer:
    """Show one's own credit, team and consent; an operator may ask for anybody's by name."""
    key = auth.key()
    if name not in (None, key.owner_name) and not key.is_operator:
        raise ObjectNotFound(f"there is no user {name[:100]!r} that you may see")
    with connection() as conn:
        return _volunteer(conn, key.owner_name if name is None else name)


@blueprint.patch("/volunteer")
@auth.rule("account")
@json_body
@answers(errors=(HTTPStatus.NOT_FOUND,))
def change_volunteer(json: VolunteerChange) -> Volunteer:
    """Join or leave a team, agree or disagree to be named in the statistics files."""
    key = auth.key()
    with connection() as conn, conn.transaction():
        return change(conn, key.owner, json)


@blueprint.get("/teams")
@auth.rule("join")
@query(limit=number("How many at most.", default=1000, most=10_000))
@answers()
def list_teams(limit: int) -> Teams:
    """List the teams, those with the most credit first."""
    with connection() as conn:
        return Teams(teams=rows.read(conn, Team, SQL["teams"], {"limit": limit}))


@blueprint.post("/teams")
@auth.rule("user")
@json_body
@answers(HTTPStatus.CREATED, errors=(HTTPStatus.CONFLICT,))
def add_team(json: NewTeam) -> Volunteer:
    """Found a team, and be in it.  Nobody founds two."""
    key = auth.key()
    with connection() as conn, conn.transaction():
        values = {"name": json.name, "founder": key.owner}
        team = rows.fetch_value(conn, int, SQL["add_team"], values)
        if team is None:
            raise Conflict(f"there is a team {json.name} already, or you founded another one")
        conn.execute(SQL["set_team"], {"owner": key.owner, "team": team})
        return _volunteer(conn, key.owner_name)


def change(conn: Connection, owner: int, change: VolunteerChange) -> Volunteer:
    """Change what is given, within the caller's transaction; return the volunteer as it is then."""
    if "public" in change.model_fields_set:
        conn.execute(SQL["set_public"], {"owner": owner, "public": change.public})
    if "team" in change.model_fields_set:
        team = None if change.team is None else _team(conn, change.team)
        conn.execute(SQL["set_team"], {"owner": owner, "team": team})
    return _volunteer(conn, rows.fetch_only_value(conn, str, SQL["owner_name"], {"owner": owner}))


def _team(conn: Connection, name: str) -> int:
    team = rows.fetch_value(conn, int, SQL["find_team"], {"name": name})
    if team is None:
        raise ObjectNotFound(f"there is no team {name}")
    return team


def _volunteer(conn: Connection, name: str) -> Volunteer:
    found = rows.read_one(conn, Volunteer, SQL["volunteer"], {"name": name})
    if found is None:
        raise ObjectNotFound(f"there is no user {name[:100]!r}")
    return found
