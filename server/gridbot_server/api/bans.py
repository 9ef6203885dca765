"""Shutting out: bans of hosts, and the end of the clients that joined with a key."""

from __future__ import annotations

from flask import Blueprint

from gridbot_server.api.schema import answers, json_body
from gridbot_server.errors import ObjectNotFound
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.models.requests import Ban
from gridbot_server.models.responses.operation import BannedHost, UnbannedHost
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.moves import relinquish
from gridbot_server.storage.states import Event

SQL = sql.load("bans.sql")

blueprint = Blueprint("bans", __name__, url_prefix="/api/v1/hosts")


@blueprint.put("/<int:host>/ban")
@auth.rule("operator")
@json_body
@answers()
def ban_host(host: int, json: Ban) -> BannedHost:
    """Shut a host out and take back at once what it holds; banning again changes the reason."""
    values = {"host": host, "why": json.why or ""}
    with connection() as conn, conn.transaction():
        conn.execute(SQL["lock_clients_of_host"], values)
        banned = rows.read_one(conn, dict, SQL["ban"], values)
        if banned is None:
            raise ObjectNotFound(f"there is no host {host}")
        conn.execute(SQL["revoke_clients_of_host"], values)
        replicas = relinquish(conn, Event.HOST_BANNED, values)
    return BannedHost(**banned, replicas=replicas)


@blueprint.delete("/<int:host>/ban")
@auth.rule("operator")
@answers()
def unban_host(host: int) -> UnbannedHost:
    """Let a host in again, with the clients that it had when it was banned."""
    with connection() as conn:
        if rows.fetch_value(conn, int, SQL["unban"], {"host": host}) is None:
            raise ObjectNotFound(f"there is no host {host}")
    return UnbannedHost(id=host, banned_at=None)


def clients_of_key(conn: Connection, token: int) -> int:
    """Return how many clients that joined with a key go on working."""
    return rows.fetch_only_value(conn, int, SQL["clients_of_key"], {"token": token})


def end_clients_of_key(conn: Connection, token: int) -> int:
    """Revoke the clients that joined with a key and take back what they hold; return how many.

    In the caller's transaction.
    """
    values = {"token": token}
    conn.execute(SQL["lock_clients_of_key"], values)
    ended = clients_of_key(conn, token)
    conn.execute(SQL["revoke_clients_of_key"], values)
    relinquish(conn, Event.CLIENT_REVOKED, values)
    return ended
