"""For operators: hosts, owners, keys, health, metrics."""

from __future__ import annotations

import base64
import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from importlib.metadata import version
from typing import NamedTuple

from flask import Blueprint, Response

from gridbot_server import metrics
from gridbot_server.api import bans
from gridbot_server.api.access import mine
from gridbot_server.api.parameters import number
from gridbot_server.api.schema import answers, json_body, query, sends
from gridbot_server.buffer.buffer import SchedulingBuffer
from gridbot_server.buffer.layout import BufferMissing
from gridbot_server.errors import Conflict, ObjectNotFound, RequestError
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.models.requests import HostChange, NewOwner, NewToken, OwnerChange
from gridbot_server.models.responses.operation import (
    AddedOwner,
    ChangedHost,
    ForgottenHost,
    Health,
    Host,
    Hosts,
    NewKey,
    Owner,
    Owners,
    RevokedToken,
    TokenInfo,
    Tokens,
)
from gridbot_server.signing import keys
from gridbot_server.storage import rows, sql, store_record
from gridbot_server.storage.db import Connection
from gridbot_server.storage.moves import relinquish
from gridbot_server.storage.states import Event

SQL = sql.load("operation.sql")
HISTORY = sql.load("history.sql")

blueprint = Blueprint("operation", __name__)

_MANY_HOSTS = 1000  # of an owner: from here on those that asked last are sought by their clients
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
    "jobs_set_aside": "jobs that an error of the server's own keeps from being decided",
}


@dataclass(frozen=True, slots=True)
class Lag:
    """How long the oldest work that is due to a cycle has waited."""

    cycle: str
    seconds: float


class _HostState(NamedTuple):
    """How many clients of a grid are in a state."""

    name: str
    label: str
    value: float


@blueprint.get("/health")
@auth.rule("public")
@answers(errors=(HTTPStatus.SERVICE_UNAVAILABLE,))
def show_health() -> Health:
    """Tell whether the server works, and how much there is to do."""
    return _health()


@blueprint.get("/metrics")
@auth.rule("metrics")
@sends("text/plain")
def show_metrics() -> Response:
    """Give what was counted and what there is, in Prometheus' text form."""
    found = _health()
    lines = [_gauge(name, text, {"": getattr(found, name)}) for name, text in _GAUGES.items()]
    with connection() as conn:
        lags = rows.read(conn, Lag, SQL["lags"])
        states = rows.fetch(conn, _HostState, HISTORY["hosts"])
    late = {f'{{cycle="{lag.cycle}"}}': lag.seconds for lag in lags}
    lines.append(_gauge("lag_seconds", "how long the oldest work due to a cycle has waited", late))
    hosts = {
        f'{{grid="{item.label}",state="{item.name.removeprefix("hosts_")}"}}': item.value
        for item in states
    }
    lines.append(_gauge("hosts", "clients that are working, idle or silent", hosts))
    info = {f'{{version="{found.version}"}}': 1.0}
    lines.append(_gauge("build_info", "the version of the server", info))
    passed_over = {"": found.inversions}
    text = "times that a BOT was passed over because its part of the buffer was dry"
    lines.append(_gauge("inversions_total", text, passed_over, "counter"))
    return Response("".join(lines) + metrics.render(), content_type=metrics.CONTENT_TYPE)


def _gauge(name: str, text: str, values: Mapping[str, float], kind: str = "gauge") -> str:
    """One metric; each of its values goes with its labels."""
    shown = {labels: "+Inf" if value == math.inf else value for labels, value in values.items()}
    samples = [f"gridbot_{name}{labels} {value}\n" for labels, value in shown.items()]
    return f"# HELP gridbot_{name} {text}\n# TYPE gridbot_{name} {kind}\n{''.join(samples)}"


@blueprint.get("/api/v1/hosts")
@auth.rule("user")
@query(limit=number("How many at most.", default=1000, most=10_000))
@answers()
def list_hosts(limit: int) -> Hosts:
    """List hosts, the latest seen first: an operator's list holds everybody's."""
    with connection() as conn:
        whose = mine()
        values = {"mine": whose, "hosts": latest_hosts(conn, whose, limit)}
        return Hosts(hosts=rows.read(conn, Host, SQL["hosts"], values))


def latest_hosts(conn: Connection, whose: int | None, limit: int) -> list[int]:
    """Return the hosts of an owner, or of all, that asked for work last, the latest first.

    Those without clients come last, by their numbers.
    """
    values = {"mine": whose, "limit": limit, "many": _MANY_HOSTS, "clients": 4 * limit}
    if rows.fetch_only_value(conn, bool, SQL["are_many"], values):
        found = rows.fetch_values(conn, int, SQL["latest_of_many"], values)
        if len(found) == limit:
            return found
    return rows.fetch_values(conn, int, SQL["latest_hosts"], values)


@blueprint.patch("/api/v1/hosts/<int:host>")
@auth.rule("user")
@json_body
@answers()
def change_host(host: int, json: HostChange) -> ChangedHost:
    """Say where a machine of one's own stands, for policies."""
    values = {**json.model_dump(), "host": host, "mine": mine()}
    with connection() as conn:
        changed = rows.read_one(conn, ChangedHost, SQL["change_host"], values)
    if changed is None:
        raise ObjectNotFound(f"there is no host {host}")
    return changed


@blueprint.delete("/api/v1/hosts/<int:host>/replicas")
@auth.rule("user")
@answers()
def forget_host(host: int) -> ForgottenHost:
    """Give what one of your hosts has to others; should it answer after all, that counts."""
    values = {"host": host, "mine": mine()}
    with connection() as conn, conn.transaction():
        if rows.fetch_value(conn, int, SQL["own_host"], values) is None:
            raise ObjectNotFound(f"there is no host {host}")
        replicas = relinquish(conn, Event.HOST_FORGOTTEN, {"host": host})
    return ForgottenHost(id=host, replicas=replicas)


@blueprint.get("/api/v1/owners")
@auth.rule("operator")
@answers()
def list_owners() -> Owners:
    """List the owners."""
    with connection() as conn:
        return Owners(owners=rows.read(conn, Owner, SQL["owners"]))


@blueprint.post("/api/v1/owners")
@auth.rule("operator")
@json_body
@answers(HTTPStatus.CREATED, errors=(HTTPStatus.CONFLICT,))
def add_owner(json: NewOwner) -> AddedOwner:
    """Add an owner, who then needs a key."""
    with connection() as conn:
        added = rows.read_one(conn, AddedOwner, SQL["add_owner"], json.model_dump())
    if added is None:
        raise Conflict(f"there is a user {json.name} already")
    return added


@blueprint.patch("/api/v1/owners/<name>")
@auth.rule("operator")
@json_body
@answers()
def change_owner(name: str, json: OwnerChange) -> AddedOwner:
    """Let an owner's own comparisons run on this server, or forbid them."""
    with connection() as conn:
        values = {"name": name, **json.model_dump()}
        changed = rows.read_one(conn, AddedOwner, SQL["change_owner"], values)
    if changed is None:
        raise ObjectNotFound(f"there is no user {name[:200]}")
    return changed


@blueprint.get("/api/v1/tokens")
@auth.rule("user")
@answers()
def list_tokens() -> Tokens:
    """List keys without the keys themselves, which nobody can see again."""
    with connection() as conn:
        return Tokens(tokens=rows.read(conn, TokenInfo, SQL["tokens"], {"mine": mine()}))


@blueprint.post("/api/v1/tokens")
@auth.rule("operator")
@json_body
@answers(HTTPStatus.CREATED)
def add_token(json: NewToken) -> NewKey:
    """Make a key for an owner and show it, once."""
    token, token_hash = keys.new_token(json.scope)
    seconds = json.expires_seconds
    lifetime = None if seconds is None else timedelta(seconds=seconds)
    values = {**json.model_dump(), "hash": token_hash, "lifetime": lifetime}
    with connection() as conn:
        is_operator = rows.fetch_value(conn, bool, SQL["owner_is_operator"], {"name": json.owner})
        if is_operator is None:
            raise RequestError(
                f"owner: there is no user {json.owner}; add it: gridbot user add {json.owner}"
            )
        if json.scope == "operator" and not is_operator:
            raise RequestError(f"scope: {json.owner} is not an operator")
        return NewKey(id=rows.fetch_only_value(conn, int, SQL["add_token"], values), token=token)


@blueprint.delete("/api/v1/tokens/<int:token>")
@auth.rule("user")
@query(with_clients=number("1: end the clients that joined with it, too.", default=0, most=1))
@answers(errors=(HTTPStatus.CONFLICT,))
def revoke_token(token: int, with_clients: int) -> RevokedToken:
    """Revoke a key at once; clients that joined with it stay, but for pilots.

    With `with_clients=1` these end as well.
    """
    values = {"token": token, "mine": mine()}
    with connection() as conn, conn.transaction():
        if rows.fetch_values(conn, int, SQL["lock_operator_keys"]) == [token]:
            raise Conflict(
                f"key {token} is the last operator's key: without it nobody can manage the server;"
                " make another first: gridbot token create NAME --scope operator"
            )
        if rows.fetch_value(conn, int, SQL["revoke_token"], values) is None:
            raise ObjectNotFound(f"there is no key {token}")
        ended = bans.end_clients_of_key(conn, token) if with_clients else 0
        left = bans.clients_of_key(conn, token)
    return RevokedToken(id=token, revoked=True, clients_ended=ended, clients_left=left)


def _health() -> Health:
    with connection() as conn:
        found = rows.read_one(conn, dict, SQL["health"])
    assert found is not None, "it counts"
    project_key = bytes.fromhex(found.pop("project_key") or "")
    store = found.pop("store")
    fed_at, inversions = _pulse()
    trouble = (
        _trouble(fed_at)
        or store_record.fault(current().store, store)
        or _set_aside(found["jobs_set_aside"])
    )
    return Health(
        **found,
        project_key=base64.b64encode(project_key).decode(),
        inversions=inversions,
        status="degraded" if trouble else "ok",
        trouble=trouble,
        version=version("gridbot"),
    )


def _trouble(fed_at: float) -> str | None:
    """Return what an operator must look after, if anything."""
    if shutil.disk_usage(current().settings.data).free < _LOW_DISK_BYTES:
        return f"less than {_LOW_DISK_BYTES >> 20} MB are free on the disk"
    silent = time.monotonic() - fed_at
    if silent > _SILENT_FEEDER_SECONDS:
        return "the feeder does not run: no new jobs are sent"
    return None


def _set_aside(jobs: int) -> str | None:
    """Say what is to be done about jobs that were set aside."""
    if not jobs:
        return None
    return f"{jobs} jobs could not be decided; which ones, and why: gridbot server check"


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
