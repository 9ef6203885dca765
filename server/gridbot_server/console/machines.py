"""My machines: what each does now, or exactly why it does not, and what it has earned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from flask import request

from gridbot_client.protocol.preferences import VENUES
from gridbot_server.api.matching import hindrances_of
from gridbot_server.api.operation import SQL as OPERATION
from gridbot_server.api.operation import change_host, forget_host, latest_hosts
from gridbot_server.api.preferences import change_preferences, show_preferences
from gridbot_server.api.schema import call
from gridbot_server.api.volunteers import add_team, change_volunteer, list_teams, show_volunteer
from gridbot_server.console.blueprint import action, blueprint, live, model, own, shared
from gridbot_server.console.words import counted, duration
from gridbot_server.errors import ObjectNotFound, RequestError
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.models.requests import HostChange, NewTeam, PreferencesChange, VolunteerChange
from gridbot_server.models.responses.operation import Host
from gridbot_server.storage import rows, sql
from gridbot_server.storage.moves import relinquish
from gridbot_server.storage.states import Event

SQL = sql.load("console.sql")

_MOST = 50  # machines on the page
_LOOKED_AT = 20  # idle machines of which it is told why
_LATEST_SECONDS = 30.0
_REASON_SECONDS = 20.0  # for which a reason is shown: it looks at the policies of many BOTs
_AWAY_SECONDS = 600.0


class _Machine(NamedTuple):
    host: int
    client: int
    seen_seconds: float
    has_room: bool


@dataclass(frozen=True, slots=True)
class ShownMachine:
    """A machine, and what it does now or why it does not, in a sentence."""

    host: Host
    says: str
    tone: str


@blueprint.get("/machines")
@auth.rule("console join")
@live("machines.html", seconds=3.0, whose=own)
def machines_page() -> dict[str, Any]:
    """Show the machines of whose session it is."""
    owner = auth.key().owner
    with connection() as conn:
        latest = {"mine": owner, "hosts": _latest(owner)}
        hosts = rows.read(conn, Host, OPERATION["hosts"], latest)
        values = {"owner": owner, "hosts": [host.id for host in hosts]}
        found = {item.host: item for item in rows.fetch(conn, _Machine, SQL["machines"], values)}
    shown, looked_at = [], 0
    for host in hosts:
        machine = found.get(host.id)
        is_idle = machine is not None and not host.replicas_running
        looked_at += is_idle
        says, tone = _says(host, machine, owner, looked_at <= _LOOKED_AT)
        shown.append(ShownMachine(host, says, tone))
    return {
        "title": "My machines",
        "may_change": auth.key().may_change_account,
        "machines": shown,
        "is_full": len(shown) == _MOST,
        "volunteer": call(show_volunteer, name=None),
        "teams": call(list_teams, limit=20).teams,
        "preferences": call(show_preferences),
        "venues": VENUES,
    }


def _latest(owner: int) -> list[int]:
    """Return the machines on the page; of those who have more, for some seconds the same ones."""

    asked: list[list[int]] = []

    def find() -> list[int]:
        with connection() as conn:
            asked.append(latest_hosts(conn, owner, _MOST))
        return asked[-1]

    found = shared(("machines", owner), _LATEST_SECONDS, find)
    return found if asked or len(found) == _MOST else find()


def _says(host: Host, machine: _Machine | None, owner: int, may_look: bool) -> tuple[str, str]:
    if host.banned_at:
        return f"banned by the operator: {host.banned_why or 'no reason is given'}", "bad"
    if machine is None:
        return "has left: no client on it may ask for work", ""
    if host.silent_since:
        return f"silent for {duration(machine.seen_seconds)}: its jobs go to others", "bad"
    if machine.seen_seconds > _AWAY_SECONDS:
        return f"has not asked for work for {duration(machine.seen_seconds)}", "warn"
    if host.too_old and not host.replicas_running:
        return (
            "its client is too old to check signatures, so it gets no signed BOT: update it",
            "bad",
        )
    if host.replicas_running:
        return f"runs {counted(host.replicas_running, 'replica')}", "good"
    return (f"idle: {_reason(machine, owner)}" if may_look else "idle"), "warn"


def _reason(machine: _Machine, owner: int) -> str:
    waiting, found = shared(
        (f"hindrances {machine.client}", owner), _REASON_SECONDS,
        lambda: hindrances_of(machine.client, owner, machine.has_room),
    )  # fmt: skip
    if not waiting:
        return "no BOT waits to be sent"
    if not found:
        return f"{counted(waiting, 'BOT')} may come at its next request"
    first = found[0]
    return f"{counted(waiting, 'BOT')} waiting; of {first.bots} of them: {first.text}"


# ---------------------------------------------------------------------------------- actions


@blueprint.post("/machines/<int:host>/venue")
@auth.rule("console volunteer")
@action
def set_venue(host: int) -> str:
    """Say where a machine stands."""
    _check_own(host)
    call(change_host, host=host, json=model(HostChange, {"venue": request.form.get("venue")}))
    return "/machines"


@blueprint.post("/machines/<int:host>/forget")
@auth.rule("console volunteer")
@action
def give_to_others(host: int) -> str:
    """Let others have what a lost machine has."""
    _check_own(host)
    call(forget_host, host=host)
    return "/machines"


@blueprint.post("/machines/<int:host>/leave")
@auth.rule("console volunteer")
@action
def leave(host: int) -> str:
    """End the clients of a machine: it gets no more work, and what it has goes to others."""
    values = {"host": host, "owner": auth.key().owner}
    with connection() as conn, conn.transaction():
        clients = rows.fetch_values(conn, int, SQL["leave"], values)
        if not clients:
            raise ObjectNotFound(f"there is no host {host} of yours that asks for work")
        for client in clients:
            relinquish(conn, Event.CLIENT_LEFT, {"client": client})
            conn.execute(SQL["revoke_client"], {"client": client})
    return "/machines"


@blueprint.post("/machines/preferences")
@auth.rule("console volunteer")
@action
def set_preference() -> str:
    """Set or remove one preference at a venue."""
    name, sign, value = map(str.strip, request.form.get("preference", "").partition("="))
    if not sign:
        raise RequestError(f"preference: give NAME=VALUE, not {name[:60]!r}")
    venue = request.form.get("venue", "default")
    change = {"venue": venue, "preferences": {name: value or None}}
    call(change_preferences, json=model(PreferencesChange, change))
    return "/machines"


@blueprint.post("/machines/share")
@auth.rule("console volunteer")
@action
def set_share() -> str:
    """Set or remove the resource share at a venue."""
    text = request.form.get("share", "").strip()
    try:
        share = float(text) if text else None
    except ValueError:
        raise RequestError(f"share: give a number, not {text[:60]!r}") from None
    change = {"shares": {request.form.get("venue", "default"): share}}
    call(change_preferences, json=model(PreferencesChange, change))
    return "/machines"


@blueprint.post("/machines/team")
@auth.rule("console volunteer")
@action
def set_team() -> str:
    """Join, leave or found a team."""
    name = request.form.get("team", "").strip()
    if request.form.get("do") == "found":
        call(add_team, json=model(NewTeam, {"name": name}))
    else:
        call(change_volunteer, json=model(VolunteerChange, {"team": name or None}))
    return "/machines"


@blueprint.post("/machines/public")
@auth.rule("console volunteer")
@action
def set_public() -> str:
    """Agree, or not, to be named among those who help."""
    is_public = request.form.get("public") == "yes"
    call(change_volunteer, json=model(VolunteerChange, {"public": is_public}))
    return "/machines"


@blueprint.get("/machines/certificate")
@auth.rule("console join")
@live("certificate.html", seconds=60.0, whose=own)
def certificate() -> dict[str, Any]:
    """Show, to be printed, what somebody has contributed."""
    return {
        "title": "Certificate",
        "volunteer": call(show_volunteer, name=None),
        "project": current().settings.project_name,
    }


def _check_own(host: int) -> None:
    """Raise ObjectNotFound for a machine of somebody else, also to an operator."""
    with connection() as conn:
        values = {"host": host, "mine": auth.key().owner}
        if rows.fetch_value(conn, int, OPERATION["own_host"], values) is None:
            raise ObjectNotFound(f"there is no host {host} of yours")
