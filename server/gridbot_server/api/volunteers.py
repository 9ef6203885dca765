"""Volunteers: who has how much credit, teams, consent, and the statistics files."""

from __future__ import annotations

from typing import Annotated, Any, cast

from flask import Blueprint, Response, request, send_file
from psycopg.rows import dict_row
from pydantic import AfterValidator, Field, ValidationError

from gridbot_server.api.access import number_argument
from gridbot_server.api.boinc import account_key
from gridbot_server.api.schema import body_limit, json_body, plain_errors
from gridbot_server.boinc.protocol import pages
from gridbot_server.boinc.protocol.pages import AccountError, password_hash
from gridbot_server.boinc.session import project
from gridbot_server.boinc.session.account_page import account_page
from gridbot_server.boinc.session.accounts import Credentials
from gridbot_server.boinc.session.hosts import find_account
from gridbot_server.credit.export import FILES
from gridbot_server.errors import Conflict, Forbidden, NotFound, RequestError, ServerBusy
from gridbot_server.http import auth
from gridbot_server.http.addresses import source
from gridbot_server.http.services import connection, current
from gridbot_server.http.slow_readers import bounded
from gridbot_server.models.requests import Body
from gridbot_server.overload.transfer_slots import Party
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection

SQL = sql.load("credit.sql")

blueprint = Blueprint("volunteers", __name__)

Document = dict[str, Any]

_FORM_BYTES = 4096


def _shown(name: str) -> str:
    if not name.isprintable() or name != name.strip():
        raise ValueError("printable characters are expected, and none but others around them")
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
        raise NotFound(f"there is no user {name[:100]!r} that you may see")
    with connection() as conn:
        return _volunteer(conn, name)


@blueprint.patch("/api/v1/volunteer")
@auth.rule("user")
@json_body
def change_volunteer(json: VolunteerChange) -> Document:
    """Join or leave a team, agree or disagree to be named in the statistics files."""
    key = auth.key()
    with connection() as conn, conn.transaction():
        _change(conn, key.owner, json)
        return _volunteer(conn, key.owner_name)


@blueprint.route(f"{project.PATH}/account", methods=["GET", "POST"])
@auth.rule("boinc")
@body_limit(lambda _: _FORM_BYTES)
def account() -> Response:
    """The same for whoever made an account from a BOINC client, who has a password and no key."""
    found = _changed_account() if request.method == "POST" else None
    text = account_page(current().settings.project_name, found)
    return Response(text, mimetype="text/html")


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


@blueprint.get(f"{project.PATH}/stats/")
@auth.rule("public")
def statistics() -> Response:
    """List the statistics files, for people."""
    return Response(pages.statistics(current().settings.project_name, FILES), mimetype="text/html")


@blueprint.get(f"{project.PATH}/stats/<name>")
@auth.rule("public")
def statistics_file(name: str) -> Response:
    """Send one of the files that BOINC's statistics sites read."""
    path = current().settings.statistics / name
    if name not in FILES or not path.exists():
        raise NotFound(f"there are no statistics {name[:100]!r}")
    # A type of its own, or a client would be told to unpack the file on its way.
    file = send_file(path, mimetype=FILES[name], conditional=True, max_age=3600)
    return bounded(file, Party(owner=source()))


def _changed_account() -> Document:
    """Do what the form says; raise Forbidden for a wrong password."""
    form = request.form
    email, password = form.get("email", ""), form.get("password", "")
    change = _decided(form.get("decision", ""), form.get("team", ""))
    given = Credentials(email, password_hash(email, password))
    key = given.fault() or account_key(given)
    if key is AccountError.PROJECT_DOWN:
        raise ServerBusy("the password is not looked at now, try again in a few minutes")
    with connection() as conn, conn.transaction():
        account = None if isinstance(key, AccountError) else find_account(conn, key)
        if account is None:
            raise Forbidden("there is no account with this e-mail address and password")
        _change(conn, account.owner, change)
        row = conn.execute(SQL["owner_name"], {"owner": account.owner}).fetchone()
        assert row is not None, "an account has an owner"
        return _volunteer(conn, row[0])


def _decided(decision: str, team: str) -> VolunteerChange:
    changes: dict[str, Document] = {
        "nothing": {},
        "public": {"public": True},
        "private": {"public": False},
        "join": {"team": team},
        "leave": {"team": None},
    }
    if decision not in changes:
        raise RequestError(f"decision: one of {', '.join(changes)} is expected")
    try:
        return VolunteerChange.model_validate(changes[decision])
    except ValidationError as error:
        raise RequestError(plain_errors(error)) from None


def _change(conn: Connection, owner: int, change: VolunteerChange) -> None:
    if "public" in change.model_fields_set:
        conn.execute(SQL["set_public"], {"owner": owner, "public": change.public})
    if "team" in change.model_fields_set:
        team = None if change.team is None else _team(conn, change.team)
        conn.execute(SQL["set_team"], {"owner": owner, "team": team})


def _team(conn: Connection, name: str) -> int:
    row = conn.execute(SQL["find_team"], {"name": name}).fetchone()
    if row is None:
        raise NotFound(f"there is no team {name}")
    return cast(int, row[0])


def _volunteer(conn: Connection, name: str) -> Document:
    rows = _rows(conn, "volunteer", {"name": name})
    if not rows:
        raise NotFound(f"there is no user {name[:100]!r}")
    return rows[0]


def _rows(conn: Connection, query: str, values: Document) -> list[Document]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(SQL[query], values).fetchall()
