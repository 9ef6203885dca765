"""Shutting out: bans of hosts, and the end of the clients that joined with a key."""

from __future__ import annotations

from typing import Any

from flask import Blueprint
from psycopg.rows import dict_row

from gridbot_server.api.schema import json_body
from gridbot_server.errors import ObjectNotFound
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.models.requests import Body, Line
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.moves import give_back
from gridbot_server.storage.states import Event

SQL = sql.load("bans.sql")

blueprint = Blueprint("bans", __name__, url_prefix="/api/v1/hosts")

Document = dict[str, Any]


class Ban(Body):
    """`PUT /hosts/ID/ban`: the reason is told to whoever runs the host."""

    why: Line | None = None


@blueprint.put("/<int:host>/ban")
@auth.rule("operator")
@json_body
def ban(host: int, json: Ban) -> Document:
    """Shut a host out and take back at once what it holds; banning again changes the reason."""
    values = {"host": host, "why": json.why or ""}
    with connection() as conn, conn.transaction(), conn.cursor(row_factory=dict_row) as cursor:
        conn.execute(SQL["lock_clients_of_host"], values)
        row = cursor.execute(SQL["ban"], values).fetchone()
        if row is None:
            raise ObjectNotFound(f"there is no host {host}")
        conn.execute(SQL["revoke_clients_of_host"], values)
        return {**row, "replicas": give_back(conn, Event.HOST_BANNED, values)}


@blueprint.delete("/<int:host>/ban")
@auth.rule("operator")
def unban(host: int) -> Document:
    """Let a host in again, with the clients that it had when it was banned."""
    with connection() as conn:
        if conn.execute(SQL["unban"], {"host": host}).fetchone() is None:
            raise ObjectNotFound(f"there is no host {host}")
    return {"id": host, "banned_at": None}


def clients_of_key(conn: Connection, token: int) -> int:
    """Return how many clients that joined with a key go on working."""
    row = conn.execute(SQL["clients_of_key"], {"token": token}).fetchone()
    assert row is not None
    return int(row[0])


def end_clients_of_key(conn: Connection, token: int) -> int:
    """Revoke the clients that joined with a key and take back what they hold; return how many.

    In the caller's transaction.
    """
    values = {"token": token}
    conn.execute(SQL["lock_clients_of_key"], values)
    ended = clients_of_key(conn, token)
    conn.execute(SQL["revoke_clients_of_key"], values)
    give_back(conn, Event.CLIENT_REVOKED, values)
    return ended
