"""Clients: what each asks for and tells with its token."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import NamedTuple

from flask import Blueprint
from psycopg.types.json import Jsonb

from gridbot_client.protocol.messages import VERSION, host_attributes, introduction_json
from gridbot_client.protocol.signatures import fingerprint
from gridbot_server.api.matching import hindrances_of
from gridbot_server.api.schema import answers, json_body
from gridbot_server.bots import signing
from gridbot_server.errors import Forbidden, RequestError, ServerBusy
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.matching.ads import lasting
from gridbot_server.models.requests import ClientChange, Leave, ReturnedReplicas
from gridbot_server.models.responses.clients import (
    ClientIdentity,
    ClientProspects,
    ClientStanding,
    HinderedBots,
    SentIntroduction,
)
from gridbot_server.models.responses.overlay import Relinquished
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.moves import relinquish
from gridbot_server.storage.states import Event

SQL = sql.load("clients.sql")
NOTABLE = sql.load("notable.sql")

blueprint = Blueprint("clients", __name__, url_prefix="/api/v1/clients")


@dataclass(frozen=True, slots=True)
class _Earned:
    """What a machine has done, and whether there is room for work of strangers."""

    jobs_today: int
    credit: float
    has_room: bool


class _Project(NamedTuple):
    """What clients hear of the project."""

    first: bytes | None  # its first key, which names it
    key: bytes | None
    epoch: int


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
        return identity_of(conn, client.id, client.owner_name)


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


def _narrow(conn: Connection, client: int, names: Sequence[str]) -> None:
    """Let a client accept some of the owners that it was joined to accept, and no others."""
    allowed = set(_accepted(conn, client))
    if not set(names) <= allowed:
        raise Forbidden(
            f"this client was not joined to accept {min(set(names) - allowed)}:"
            " join it again with an operator's key"
        )
    accepts = {"client": client, "accepts": owner_ids(conn, names)}
    conn.execute(SQL["change_accepts"], accepts)


def _accepted(conn: Connection, client: int) -> list[str]:
    names: list[str] = rows.fetch_only_value(conn, list, SQL["accepted"], {"client": client})
    return names


def owner_ids(conn: Connection, names: Sequence[str]) -> list[int]:
    """Ids of owners whose BOTs a client is to accept.  Raises RequestError for an unknown name."""
    found: dict[str, int] = rows.fetch_mapping(conn, SQL["owners"], {"names": list(names)})
    for name in names:
        if name not in found:
            raise RequestError(f"accepts: there is no owner {name}")
    return sorted(found.values())


def identity_of(conn: Connection, client: int, owner: str) -> ClientIdentity:
    """What a client is to know of itself, of its owner and of the project."""
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
