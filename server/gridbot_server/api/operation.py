"""For operators: hosts, owners, keys, health, metrics."""

from __future__ import annotations

import base64
import math
import shutil
import time
from collections.abc import Mapping
from datetime import timedelta
from importlib.metadata import version
from typing import Any

from flask import Blueprint, Response
from psycopg.rows import dict_row

from gridbot_server.api import bans
from gridbot_server.api.access import mine, number_argument
from gridbot_server.api.schema import json_body
from gridbot_server.buffer.buffer import BufferMissing, SchedulingBuffer
from gridbot_server.errors import Conflict, ObjectNotFound, RequestError
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.models.requests import HostChange, NewOwner, NewToken
from gridbot_server.signing import keys
from gridbot_server.storage import sql

SQL = sql.load("operation.sql")

blueprint = Blueprint("operation", __name__)

Document = dict[str, Any]

# With less room than this on the disk, uploads and the database will fail soon.
_LOW_DISK_BYTES = 512 << 20
# The feeder passes several times a second; while it restarts, nobody need be called.
_SILENT_FEEDER_SECONDS = 30.0
_GAUGES = {
    "bots_running": "BOTs that have jobs left",
    "jobs_unsent": "replicas that wait to be sent",
    "replicas_running": "replicas in progress",
    "clients_active": "clients that asked for work in the last ten minutes",
    "jobs_undecided": "wake-ups that the transitioner has still to settle, up to 10,000",
    "inversions": "times that a BOT was passed over because its part of the buffer was dry",
}


@blueprint.get("/health")
@auth.rule("public")
def health() -> Document:
    """Tell whether the server works, and how much there is to do."""
    return _health()


@blueprint.get("/metrics")
@auth.rule("operator")
def metrics() -> Response:
    """Give the gauges in Prometheus' text form."""
    found = _health()
    lines = [_gauge(name, text, {"": found[name]}) for name, text in _GAUGES.items()]
    lags = {f'{{cycle="{row["cycle"]}"}}': row["seconds"] for row in _rows("lags")}
    lines.append(_gauge("lag_seconds", "how long the oldest work due to a cycle has waited", lags))
    return Response("".join(lines), mimetype="text/plain")


def _gauge(name: str, text: str, values: Mapping[str, float]) -> str:
    """One gauge; each of its values goes with its labels."""
    shown = {labels: "+Inf" if value == math.inf else value for labels, value in values.items()}
    samples = [f"gridbot_{name}{labels} {value}\n" for labels, value in shown.items()]
    return f"# HELP gridbot_{name} {text}\n# TYPE gridbot_{name} gauge\n{''.join(samples)}"


@blueprint.get("/api/v1/hosts")
@auth.rule("user")
def hosts() -> Document:
    """List hosts, the latest seen first: an operator's list holds everybody's."""
    values = {"mine": mine(), "limit": number_argument("limit", default=1000, most=10_000)}
    return {"hosts": _rows("hosts", values)}


@blueprint.patch("/api/v1/hosts/<int:host>")
@auth.rule("user")
@json_body
def change_host(host: int, json: HostChange) -> Document:
    """Say where a machine of one's own stands, for policies."""
    rows = _rows("change_host", {**json.model_dump(), "host": host, "mine": mine()})
    if not rows:
        raise ObjectNotFound(f"there is no host {host}")
    return rows[0]


@blueprint.get("/api/v1/owners")
@auth.rule("operator")
def owners() -> Document:
    """List the owners."""
    return {"owners": _rows("owners")}


@blueprint.post("/api/v1/owners")
@auth.rule("operator")
@json_body
def add_owner(json: NewOwner) -> tuple[Document, int]:
    """Add an owner, who then needs a key."""
    rows = _rows("add_owner", json.model_dump())
    if not rows:
        raise Conflict(f"there is an owner {json.name} already")
    return rows[0], 201


@blueprint.get("/api/v1/tokens")
@auth.rule("user")
def tokens() -> Document:
    """List keys without the keys themselves, which nobody can see again."""
    return {"tokens": _rows("tokens", {"mine": mine()})}


@blueprint.post("/api/v1/tokens")
@auth.rule("operator")
@json_body
def add_token(json: NewToken) -> tuple[Document, int]:
    """Make a key for an owner and show it, once."""
    found = _rows("owner_is_operator", {"name": json.owner})
    if not found:
        raise RequestError(
            f"owner: there is no user {json.owner}; add it: gridbot user add {json.owner}"
        )
    if json.scope == "operator" and not found[0]["operator"]:
        raise RequestError(f"scope: {json.owner} is not an operator")
    token, token_hash = keys.new_token()
    seconds = json.expires_seconds
    lifetime = None if seconds is None else timedelta(seconds=seconds)
    values = {**json.model_dump(), "hash": token_hash, "lifetime": lifetime}
    return {"id": _rows("add_token", values)[0]["id"], "token": token}, 201


@blueprint.delete("/api/v1/tokens/<int:token>")
@auth.rule("user")
def revoke_token(token: int) -> Document:
    """Revoke a key at once; clients that joined with it stay, but for pilots.

    With `with_clients=1` these end as well.
    """
    with_clients = number_argument("with_clients", default=0, most=1)
    values = {"token": token, "mine": mine()}
    with connection() as conn, conn.transaction():
        if conn.execute(SQL["revoke_token"], values).fetchone() is None:
            raise ObjectNotFound(f"there is no key {token}")
        ended = bans.end_clients_of_key(conn, token) if with_clients else 0
        left = bans.clients_of_key(conn, token)
    return {"id": token, "revoked": True, "clients_ended": ended, "clients_left": left}


def _health() -> Document:
    found = _rows("health")[0]
    project_key = base64.b64encode(bytes.fromhex(found["project_key"] or "")).decode()
    fed_at, inversions = _pulse()
    trouble = _trouble(fed_at)
    return {
        **found,
        "project_key": project_key,
        "inversions": inversions,
        "status": "degraded" if trouble else "ok",
        "trouble": trouble,
        "version": version("gridbot"),
    }


def _trouble(fed_at: float) -> str | None:
    """Return what an operator must look after, if anything."""
    if shutil.disk_usage(current().settings.data).free < _LOW_DISK_BYTES:
        return f"less than {_LOW_DISK_BYTES >> 20} MB are free on the disk"
    silent = time.monotonic() - fed_at
    if silent > _SILENT_FEEDER_SECONDS:
        return "the feeder does not run: no new jobs are sent"
    return None


def _pulse() -> tuple[float, int]:
    """Return when the feeder last passed (monotonic seconds), and the inversions it counted."""
    try:
        buffer = SchedulingBuffer(current().settings.buffer_path)
    except BufferMissing:
        return float("-inf"), 0
    try:
        fed_at, _, inversions = buffer.pulse()
        return fed_at, inversions
    finally:
        buffer.close()


def _rows(query: str, values: Document | None = None) -> list[Document]:
    with connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(SQL[query], values).fetchall()
