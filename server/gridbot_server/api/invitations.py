"""Invitations: keys that let some machines join for their owner, for a while."""

from __future__ import annotations

from datetime import datetime, timedelta
from http import HTTPStatus
from typing import NamedTuple

from flask import Blueprint

from gridbot_client.protocol.signatures import fingerprint
from gridbot_server.api.schema import answers, json_body
from gridbot_server.bots import signing
from gridbot_server.errors import Forbidden, RequestError
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.models.requests import NewInvitation
from gridbot_server.models.responses.operation import IssuedInvitation
from gridbot_server.signing import keys
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection

SQL = sql.load("invitations.sql")
OWNERS = sql.load("clients.sql")

blueprint = Blueprint("invitations", __name__, url_prefix="/api/v1/invitations")


class _Added(NamedTuple):
    id: int
    expires_at: datetime


class _Machines(NamedTuple):
    """Those that joined with an invitation, and whether the one that joins is among them."""

    joined: int
    is_among: bool


@blueprint.post("")
@auth.rule("user")
@json_body
@answers(HTTPStatus.CREATED)
def add_invitation(json: NewInvitation) -> IssuedInvitation:
    """Make a key with which machines join for the caller; an operator may name another owner."""
    key = auth.key()
    name = json.owner or key.owner_name
    if name != key.owner_name and not key.is_operator:
        raise Forbidden(f"only an operator can invite machines for {name}")
    token, token_hash = keys.new_token("join")
    with connection() as conn, conn.transaction():
        owner = _owner(conn, name)
        values = {
            "hash": token_hash, "owner": owner, "label": json.label, "uses": json.uses,
            "lifetime": timedelta(seconds=json.expires_seconds),
        }  # fmt: skip
        added = rows.fetch_only(conn, _Added, SQL["add"], values)
        owner_keys = [
            fingerprint(item.key) for item in signing.keys_of(conn, owner) if not item.is_revoked
        ]
    return IssuedInvitation(
        id=added.id, token=token, owner=name, owner_keys=owner_keys, uses=json.uses,
        expires_at=added.expires_at,
    )  # fmt: skip


def check_room(conn: Connection, key: auth.Key, host: int) -> None:
    """Raise Forbidden if a key is an invitation that has expired, or that machines have used up.

    A machine that joins again takes no further place, and may do so at any time.  To be called in
    the transaction that joins.
    """
    values = {"key": key.id, "host": host}
    uses = rows.fetch_value(conn, int, SQL["lock"], values)
    if uses is None:
        return
    machines = rows.fetch_only(conn, _Machines, SQL["machines"], values)
    if machines.is_among:
        return
    if key.is_expired:
        raise Forbidden("this invitation has expired; ask for another")
    if machines.joined >= uses:
        told = "1 machine, which has" if uses == 1 else f"{uses} machines, which have"
        raise Forbidden(f"this invitation was for {told} joined; ask for another")


def _owner(conn: Connection, name: str) -> int:
    found: dict[str, int] = rows.fetch_mapping(conn, OWNERS["owners"], {"names": [name]})
    if name not in found:
        raise RequestError(f"owner: there is no user {name}; add it: gridbot user add {name}")
    return found[name]
