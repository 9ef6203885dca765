"""Clients: join with a key, then speak with a token of their own."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from importlib.metadata import version
from typing import NamedTuple

import msgspec
from flask import Blueprint
from psycopg.types.json import Jsonb

from gridbot_client.protocol.messages import VERSION, host_attributes, introduction_json
from gridbot_client.protocol.signatures import fingerprint
from gridbot_server.api.invitations import check_room
from gridbot_server.api.matching import hindrances_of
from gridbot_server.api.schema import answers, json_body
from gridbot_server.bots import signing
from gridbot_server.dispatch.bans import Banned
from gridbot_server.errors import Forbidden, RequestError, ServerBusy, Unauthorized
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.matching.ads import lasting
from gridbot_server.models.requests import ClientChange, Join, JoinAgain, Leave, ReturnedReplicas
from gridbot_server.models.responses.clients import (
    ClientIdentity,
    ClientProspects,
    ClientStanding,
    HinderedBots,
    JoinedClient,
    SentIntroduction,
)
from gridbot_server.models.responses.overlay import Relinquished
from gridbot_server.signing import keys, receipts
from gridbot_server.signing.receipts import Receipt
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.moves import relinquish
from gridbot_server.storage.states import Event

SQL = sql.load("clients.sql")
NOTABLE = sql.load("notable.sql")
BOINC = sql.load("boinc.sql")

blueprint = Blueprint("clients", __name__, url_prefix="/api/v1/clients")


@dataclass(frozen=True, slots=True)
class _Host:
    """A machine, known by its identity, and whether it may come."""

    id: int
    is_banned: bool
    banned_why: str


@dataclass(frozen=True, slots=True)
class _Earned:
    """What a machine has done, and whether there is room for work of strangers."""

    jobs_today: int
    credit: float
    has_room: bool


@dataclass(frozen=True, slots=True)
class _PilotsKey:
    """Which pilots a key is for: TAG.0 to TAG.(pilots - 1)."""

    tag: str
    pilots: int


class _Project(NamedTuple):
    """What clients hear of the project."""

    first: bytes | None  # its first key, which names it
    key: bytes | None
    epoch: int


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
    identity = dict(_identity(conn, client, key.owner_name))
    given = "" if key.grid else _receipt(conn, key, json, token_hash)
    return JoinedClient(**identity, token=token, receipt=given, owner_keys=_own_keys(conn, key))


class _Issuing(NamedTuple):
    """What receipts of this server are made with."""

    secret: str
    epoch: int


class _Held(NamedTuple):
    """What the database knows of who holds a receipt."""

    owner: int | None
    key: int | None
    is_revoked: bool


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


@blueprint.put("/self")
@auth.rule("client")
@json_body
@answers()
def change_client(json: ClientChange) -> ClientIdentity:
    """Describe the machine anew, change whom the client trusts."""
    client = auth.client()
    with connection() as conn, conn.transaction():
        if json.accepts is not None:
            others = [name for name in json.accepts if name != client.owner_name]
            _narrow(conn, client.id, others)
        _trust(conn, client, json)
        if json.host is not None:
            ad = Jsonb(lasting(host_attributes(json.host)))
            conn.execute(SQL["change_host"], {"host": client.host, "ad": ad})
        return _identity(conn, client.id, client.owner_name)


@blueprint.get("/self/standing")
@auth.rule("client")
@answers()
def show_standing() -> ClientStanding:
    """Tell a volunteer's machine how many of its answers were right, wrong or not checked."""
    with connection() as conn:
        values = {"host": auth.client().host}
        found = rows.read_one(conn, ClientStanding, SQL["standing"], values)
    assert found is not None, "a client has a host"
    return found


@blueprint.get("/self/prospects")
@auth.rule("client")
@answers()
def show_prospects() -> ClientProspects:
    """Tell a volunteer's machine what keeps the BOTs that wait to be sent from it.

    About the machine alone: not whose the BOTs are, nor what they hold.
    """
    client = auth.client()
    if not current().prospects.take(str(client.id), time.monotonic()):
        raise ServerBusy("rate limit: asked too often what there is to do; try again later")
    with connection() as conn:
        earned = rows.read_one(conn, _Earned, SQL["earned"], {"host": client.host})
    assert earned is not None, "a client has a host"
    waiting, found = hindrances_of(client.id, client.owner, earned.has_room)
    return ClientProspects(
        bots_waiting=waiting,
        reasons=[HinderedBots(**asdict(item)) for item in found],
        jobs_today=earned.jobs_today,
        credit=earned.credit,
        release=version("gridbot"),
    )


@blueprint.post("/self/leave")
@auth.rule("client")
@json_body
@answers()
def end_client(json: Leave) -> Relinquished:
    """Take back what the client holds, which will not run it any further; tell how much.

    A pilot says which BOTs' replicas its end cuts off: they need more time than it had.
    """
    values = {"client": auth.client().id}
    if json.cut_off:  # by itself: BOTs are locked before leases
        cut_off = [item.model_dump() for item in json.cut_off]
        with connection() as conn:
            conn.execute(SQL["cut_off"], {**values, "cut_off": rows.encode(cut_off)})
    with connection() as conn, conn.transaction():
        conn.execute(NOTABLE["note_leave"], values)
        return Relinquished(replicas=relinquish(conn, Event.CLIENT_LEFT, values))


@blueprint.post("/self/return")
@auth.rule("client")
@json_body
@answers()
def return_replicas(json: ReturnedReplicas) -> Relinquished:
    """Take back replicas that the client cannot run, or that were called back; tell how many it
    held.
    """
    bots, seqs, replicas = zip(*json.replicas, strict=True)
    with connection() as conn, conn.transaction():
        values = {"client": auth.client().id, "bots": list(bots), "seqs": list(seqs)}
        count = relinquish(conn, Event.RETURNED, {**values, "replicas": list(replicas)})
        return Relinquished(replicas=count)


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
    return _owner_ids(conn, others)


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


def _trust(conn: Connection, client: auth.AuthenticatedClient, json: ClientChange) -> None:
    """Note what a client can check and whom its user trusts now."""
    found = signing.owners_of_keys(conn, json.trusts)
    values = {
        "client": client.id,
        "protocol": json.protocol,
        "trusts": sorted(found),
        "owner": client.owner,
    }
    conn.execute(SQL["change_trust"], values)


def _own_keys(conn: Connection, key: auth.Key) -> list[str]:
    """Fingerprints of the signing keys of the person who joins with a key of their own."""
    if key.scope not in ("user", "operator"):
        return []
    return [
        fingerprint(item.key) for item in signing.keys_of(conn, key.owner) if not item.is_revoked
    ]


def _narrow(conn: Connection, client: int, names: Sequence[str]) -> None:
    """Let a client accept some of the owners that it was joined to accept, and no others."""
    allowed = set(_accepted(conn, client))
    if not set(names) <= allowed:
        raise Forbidden(
            f"this client was not joined to accept {min(set(names) - allowed)}:"
            " join it again with an operator's key"
        )
    accepts = {"client": client, "accepts": _owner_ids(conn, names)}
    conn.execute(SQL["change_accepts"], accepts)


def _accepted(conn: Connection, client: int) -> list[str]:
    names: list[str] = rows.fetch_only_value(conn, list, SQL["accepted"], {"client": client})
    return names


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


def _owner_ids(conn: Connection, names: Sequence[str]) -> list[int]:
    found: dict[str, int] = rows.fetch_mapping(conn, SQL["owners"], {"names": list(names)})
    for name in names:
        if name not in found:
            raise RequestError(f"accepts: there is no owner {name}")
    return sorted(found.values())


def _identity(conn: Connection, client: int, owner: str) -> ClientIdentity:
    project = rows.fetch_only(conn, _Project, SQL["project"])
    return ClientIdentity(
        client=client,
        owner=owner,
        accepts=_accepted(conn, client),
        project=fingerprint(project.first or b""),
        project_key=base64.b64encode(project.key or b"").decode(),
        signs_at_submission=current().settings.sign_on_submit,
        epoch=project.epoch,
        protocol=VERSION,
        introductions=[
            SentIntroduction(**introduction_json(item)) for item in signing.project_links(conn)
        ],
    )
