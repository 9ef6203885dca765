"""Joining: a machine gets a client with a token, by a key or by a receipt."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

import msgspec
from flask import Blueprint
from psycopg.types.json import Jsonb

from gridbot_client.protocol.messages import host_attributes
from gridbot_client.protocol.signatures import fingerprint
from gridbot_server.api.clients import identity_of, owner_ids
from gridbot_server.api.invitations import check_room
from gridbot_server.api.schema import answers, json_body
from gridbot_server.bots import signing
from gridbot_server.dispatch.bans import Banned
from gridbot_server.errors import Forbidden, ServerBusy, Unauthorized
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.matching.ads import lasting
from gridbot_server.models.requests import Join, JoinAgain
from gridbot_server.models.responses.clients import JoinedClient
from gridbot_server.signing import keys, receipts
from gridbot_server.signing.receipts import Receipt
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.moves import relinquish
from gridbot_server.storage.states import Event

SQL = sql.load("clients.sql")
BOINC = sql.load("boinc.sql")

blueprint = Blueprint("joining", __name__, url_prefix="/api/v1/clients")


@dataclass(frozen=True, slots=True)
class _Host:
    """A machine, known by its identity, and whether it may come."""

    id: int
    is_banned: bool
    banned_why: str


@dataclass(frozen=True, slots=True)
class _PilotsKey:
    """Which pilots a key is for: TAG.0 to TAG.(pilots - 1)."""

    tag: str
    pilots: int


class _Issuing(NamedTuple):
    """What receipts of this server are made with."""

    secret: str
    epoch: int


class _Held(NamedTuple):
    """What the database knows of who holds a receipt."""

    owner: int | None
    key: int | None
    is_revoked: bool


@blueprint.post("")
@auth.rule("joining")
@json_body
@answers(HTTPStatus.CREATED)
def join_client(json: Join) -> JoinedClient:
    """Register a client on a machine and give it its token, once."""
    with connection() as conn, conn.transaction():
        return _join(conn, auth.key(), json)


@blueprint.post("/again")
@auth.rule("public")
@json_body
@answers(HTTPStatus.CREATED, errors=(HTTPStatus.FORBIDDEN,))
def join_again(json: JoinAgain) -> JoinedClient:
    """Register a client that joined before the server was restored, and give it another token."""
    with connection() as conn, conn.transaction():
        issuing = rows.fetch_only(conn, _Issuing, SQL["receipts"])
        receipt = _checked(json, issuing)
        name = keys.token_hash(json.receipt)
        key = _key_of(conn, receipt, name)
        # It is the same machine, whatever that calls itself now.
        words = Join(
            host=json.host, mac=receipt.machine, protocol=json.protocol, trusts=json.trusts
        )
        return _join(conn, key, words, name)


def _join(
    conn: Connection, key: auth.Key, json: Join, receipt: bytes | None = None
) -> JoinedClient:
    """Register a client in the caller's transaction; `receipt` is the hash of what it came with."""
    token, token_hash = keys.new_token("client")
    host = _host(conn, key, json)
    # What decides where jobs go that failed elsewhere is not for any volunteer to say.
    vouched = key.is_operator or key.serves is not None
    dedicated = vouched and json.host.get("IsDedicated") is True
    made = {
        "hash": token_hash, "host": host, "owner": key.owner, "dedicated": dedicated,
        "key": key.id or None, "protocol": json.protocol,
        "trusts": _trusted(conn, key, json.trusts), "receipt": receipt,
    }  # fmt: skip
    if key.serves is None:
        made["accepts"] = _accepts(conn, key, json.accepts)
        _check_newcomer(conn, key)
        check_room(conn, key, host)
        client = rows.fetch_only_value(conn, int, SQL["add_client"], made)
    else:
        _check_pilot(conn, key, json.pilot)
        made["pilot"] = json.pilot
        client = rows.fetch_only_value(conn, int, SQL["add_pilot"], made)
    identity = dict(identity_of(conn, client, key.owner_name))
    given = "" if key.grid else _receipt(conn, key, json, token_hash)
    return JoinedClient(**identity, token=token, receipt=given, owner_keys=_own_keys(conn, key))


def _receipt(conn: Connection, key: auth.Key, json: Join, token_hash: bytes) -> str:
    issuing = rows.fetch_only(conn, _Issuing, SQL["receipts"])
    receipt = Receipt(
        issuing.epoch, token_hash, json.mac, key.owner, key.owner_name, key.id, key.scope
    )
    return receipts.write(receipt, issuing.secret)


def _checked(json: JoinAgain, issuing: _Issuing) -> Receipt:
    """A receipt of this server from before it was restored.  Raises Forbidden."""
    receipt = receipts.read(json.receipt, issuing.secret)
    if receipt is None:
        raise Forbidden("the receipt is not one of this server")
    if receipt.epoch == issuing.epoch:
        raise Forbidden("receipts are for servers that were restored since: join with a key")
    return receipt


def _key_of(conn: Connection, receipt: Receipt, name: bytes) -> auth.Key:
    """The key that a receipt stands for; `name` is its hash.  Raises Forbidden."""
    values = {**msgspec.structs.asdict(receipt), "receipt": name}
    held = rows.fetch_only(conn, _Held, SQL["of_receipt"], values)
    if held.is_revoked:
        raise Forbidden("the receipt's client, or the key that it joined with, is revoked")
    if held.owner is None:
        raise Forbidden(
            f"the restored server has no owner {receipt.owner_name}: ask its operator for a key"
        )
    return auth.Key(
        id=held.key or 0, owner=held.owner, owner_name=receipt.owner_name, scope=receipt.scope,
        grid=None, serves=None, is_expired=False, is_invitation=False, by_password=False,
    )  # fmt: skip


def _host(conn: Connection, key: auth.Key, json: Join) -> int:
    # A grid's machine is the same one whoever sends pilots there (paper section 6.5).
    whose = f"grid {key.grid}" if key.grid else key.owner_name
    machine = {
        "identity": f"{whose}:{json.mac}",
        "owner": key.owner,
        "grid": key.grid,
        "ad": Jsonb(lasting(host_attributes(json.host))),
    }
    host = rows.read_one(conn, _Host, SQL["host"], machine)
    assert host is not None, "it is inserted or updated"
    if host.is_banned:
        raise Banned(host.banned_why)
    return host.id


def _check_newcomer(conn: Connection, key: auth.Key) -> None:
    """Bound the clients of an account that anybody could make, as those in BOINC's protocol."""
    owner = {"owner": key.owner}
    is_bound = (
        key.scope in ("join", "account") and conn.execute(BOINC["is_self_made"], owner).fetchone()
    )
    if is_bound and not current().login_limits.attachments.take(str(key.owner), time.monotonic()):
        raise ServerBusy("rate limit: too many new hosts of this account; try again later")


def _check_pilot(conn: Connection, key: auth.Key, name: str) -> None:
    """Let a pilot join once under each of the names that its key is for; the last one counts."""
    good = rows.read_one(conn, _PilotsKey, SQL["lock_key"], {"key": key.id})
    if good is None:
        raise Unauthorized("the key is expired or revoked")
    if name not in {f"{good.tag}.{index}" for index in range(good.pilots)}:
        raise Forbidden(f"this key is not for a pilot {name!r}")
    values = {"key": key.id, "pilot": name}
    for client in rows.fetch_values(conn, int, SQL["earlier_pilots"], values):
        relinquish(conn, Event.CLIENT_LEFT, {"client": client})


def _accepts(conn: Connection, key: auth.Key, names: Sequence[str]) -> list[int]:
    """Return whose unsigned BOTs a new client runs.

    To run them is to see their inputs and to make their results: whose clients these may be is
    not for anybody to say of himself.
    """
    others = [name for name in names if name != key.owner_name]
    if others and not key.is_operator:
        raise Forbidden(
            f"only an operator's key can make a client accept {others[0]}: ask the operator"
        )
    return owner_ids(conn, others)


def _trusted(conn: Connection, key: auth.Key, fingerprints: Sequence[str]) -> list[int]:
    """Return the owners whose signatures a new client trusts.

    Who they are is for the machine's user to say.  But whoever gets jobs sees their inputs and
    makes their results, so that an operator says which clients get those of other owners.
    """
    found = signing.owners_of_keys(conn, fingerprints)
    if key.serves is not None:
        return sorted(found & set(key.serves))
    if key.is_operator:
        return sorted(found)
    return sorted(found & {key.owner})


def _own_keys(conn: Connection, key: auth.Key) -> list[str]:
    """Fingerprints of the signing keys of the person who joins with a key of their own."""
    if key.scope not in ("user", "operator"):
        return []
    return [
        fingerprint(item.key) for item in signing.keys_of(conn, key.owner) if not item.is_revoked
    ]
