"""For the overlay's constructor: what BOTs demand, how pilots fare, keys for pilots.

Paper section 5: the constructor matches the BOTs' demand to the grids; section 8: whom a pilot
serves is known before it is submitted, and its key is good for nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from flask import Blueprint, request
from psycopg.rows import dict_row

from gridbot_client.protocol.messages import Manifest
from gridbot_policies.classad import UNDEFINED, Record
from gridbot_server.api.access import number_argument
from gridbot_server.api.matching import queue_ad, state_of
from gridbot_server.api.schema import json_body
from gridbot_server.errors import RequestError
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.matching.ads import bot_ad
from gridbot_server.models.requests import EndedPilots, PilotToken, Tags
from gridbot_server.signing import keys
from gridbot_server.storage import sql
from gridbot_server.storage.moves import give_back
from gridbot_server.storage.states import Event

SQL = sql.load("overlay.sql")

blueprint = Blueprint("overlay", __name__, url_prefix="/api/v1/overlay")

Document = dict[str, Any]

_MOST_PILOTS = 20_000


@blueprint.get("/demand")
@auth.rule("operator")
def demand() -> Document:
    """Tell what each unfinished BOT could use now, with the ads that its GridPolicy looks at."""
    now = time.time()
    with connection() as conn:
        queue = queue_ad(conn)
        with conn.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(SQL["demand"]).fetchall()
    return {"bots": [_demand(row, now) for row in rows], "queue": _plain(queue)}


@blueprint.get("/pilots")
@auth.rule("operator")
def pilots() -> Document:
    """List a grid's pilots of the last `seconds`, the latest first."""
    values = {
        "grid": request.args.get("grid", ""),
        "lifetime": timedelta(seconds=number_argument("seconds", default=86_400, most=10**7)),
        "limit": _MOST_PILOTS,
    }
    with connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        return {"pilots": cursor.execute(SQL["pilots"], values).fetchall()}


@blueprint.post("/pilots/ended")
@auth.rule("operator")
@json_body
def pilots_ended(json: EndedPilots) -> Document:
    """Take back what pilots ran that their grid has ended; tell how many replicas that were."""
    with connection() as conn, conn.transaction():
        return {"replicas": give_back(conn, Event.PILOT_ENDED, json.model_dump())}


@blueprint.post("/tokens")
@auth.rule("operator")
@json_body
def add_token(json: PilotToken) -> tuple[Document, int]:
    """Make a key for pilots: for one grid, for some owners' BOTs, for a while."""
    token, token_hash = keys.new_token()
    with connection() as conn:
        found: dict[str, int] = dict(
            conn.execute(SQL["owner_ids"], {"names": json.owners}).fetchall()
        )
        if missing := set(json.owners) - set(found):
            raise RequestError(f"owners: there is no owner {min(missing)}")
        values = {
            "hash": token_hash,
            "owner": auth.key().owner,
            "grid": json.grid,
            "serves": sorted(found.values()),
            "tag": json.tag,
            "count": json.count,
            "lifetime": timedelta(seconds=json.seconds),
        }
        row = conn.execute(SQL["add_token"], values).fetchone()
    assert row is not None, "it inserts one"
    return {"id": row[0], "token": token}, 201


@blueprint.post("/tags")
@auth.rule("operator")
@json_body
def known_tags(json: Tags) -> Document:
    """Tell which submissions somebody still counts on: by tag, the number of a good key."""
    with connection() as conn:
        return {"keys": dict(conn.execute(SQL["good_keys"], json.model_dump()).fetchall())}


def _demand(row: Mapping[str, Any], now: float) -> Document:
    resources = Manifest.from_text(row["manifest"]).resources
    ad = bot_ad(state_of(row), row["name"], row["owner_name"], row["signed"], now)
    return {
        "bot": row["id"],
        "name": row["name"],
        "owner": row["owner_name"],
        "is_operator": row["operator"],
        "share": row["share"],
        "unsent": row["unsent"],
        "dedicated": row["dedicated"],
        "on_pilots": row["on_pilots"],
        "seconds": row["mean_turnaround"],
        "cpus": resources.cpus,
        "memory_mb": resources.memory_mb,
        "policy": row["policy"],
        "ad": _plain(ad),
    }


def _plain(ad: Record) -> Document:
    """Return an ad of plain values as JSON; what is undefined is left out."""
    values = zip(ad.names, ad.attributes.values(), strict=True)
    return {name: value for name, value in values if value is not UNDEFINED}
