"""What happened over time: to a BOT, and to the server."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from flask import Blueprint

from gridbot_server.api.access import mine
from gridbot_server.api.parameters import number
from gridbot_server.api.schema import answers, query
from gridbot_server.errors import ObjectNotFound
from gridbot_server.history import curves
from gridbot_server.history.curves import Curve, Subject
from gridbot_server.history.steps import DAY, MINUTE, span
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.models.responses.history import (
    BotHistory,
    FailureCurve,
    FailureExample,
    FigureCurve,
    GridCurves,
    HostSession,
    HostSessions,
    ServerHistory,
    SlowJob,
)
from gridbot_server.storage import rows, sql
from gridbot_server.storage.counters import Happening
from gridbot_server.storage.db import PostgresConnection

NOTABLE = sql.load("notable.sql")
OPERATION = sql.load("operation.sql")

blueprint = Blueprint("history", __name__, url_prefix="/api/v1")

_LAST = 100_000_000_000  # s since the epoch; databases know no time much later
_BEGIN = number("From this time on, in seconds since the epoch.", most=_LAST)
_END = number(
    "To this time, in seconds since the epoch; without it, to now or to the BOT's end.", most=_LAST
)
_STEP = number(
    "Seconds of a step: 60, 300, 900, 3600, 21600 or 86400; without it, some hundred steps."
)


@blueprint.get("/bots/<int:bot>/history")
@auth.rule("user")
@query(begin=_BEGIN, end=_END, step=_STEP)
@answers(errors=(HTTPStatus.BAD_REQUEST,))
def show_history(bot: int, begin: int | None, end: int | None, step: int | None) -> BotHistory:
    """Tell what happened to a BOT over time, by grid; from its submission on without `begin`."""
    with connection() as conn:
        found = _subject(conn, bot)
        made = curves.sums(conn)
        over = made.now if found.ended_at is None else found.ended_at.timestamp() + MINUTE
        first = found.created_at.timestamp() if begin is None else begin
        wanted = span(first, over if end is None else end, step, made.now)
        grids = curves.of_bot(conn, bot, wanted, made)
        failures = curves.failures(conn, bot, wanted, made)
        examples = rows.read(conn, FailureExample, NOTABLE["examples"], {"bot": bot})
        slowest = rows.read(conn, SlowJob, NOTABLE["slowest"], {"bot": bot})
        left = curves.left(conn, bot, found.jobs_left, wanted, made, grids)
    return BotHistory(
        id=bot,
        name=found.name,
        step_seconds=wanted.step,
        times=list(wanted.times),
        left=left,
        grids=_grids(grids),
        failures=[
            FailureCurve(reason=reason, grid=grid or None, errors=errors)
            for (reason, grid), errors in sorted(failures.items())
        ],
        examples=examples,
        slowest=slowest,
        created_at=found.created_at,
        ended_at=found.ended_at,
    )


@blueprint.get("/history")
@auth.rule("operator")
@query(begin=_BEGIN, end=_END, step=_STEP)
@answers(errors=(HTTPStatus.BAD_REQUEST,))
def show_server_history(begin: int | None, end: int | None, step: int | None) -> ServerHistory:
    """Tell what happened on the server over time; in the last day without `begin`."""
    with connection() as conn:
        made = curves.sums(conn)
        over = made.now if end is None else float(end)
        wanted = span(over - DAY if begin is None else begin, over, step, made.now)
        grids = curves.of_bot(conn, curves.ALL, wanted, made)
        figures = curves.of_server(conn, wanted, made)
    return ServerHistory(
        step_seconds=wanted.step,
        times=list(wanted.times),
        grids=_grids(grids),
        figures=[
            FigureCurve(name=name, label=label or None, values=values)
            for (name, label), values in sorted(figures.items())
        ],
    )


@blueprint.get("/hosts/<int:host>/sessions")
@auth.rule("user")
@query(limit=number("How many at most.", default=1000, most=10_000))
@answers()
def list_sessions(host: int, limit: int) -> HostSessions:
    """Tell when a machine was there, and why it went: one session for each client on it."""
    with connection() as conn:
        values = {"host": host, "mine": mine()}
        if rows.fetch_value(conn, int, OPERATION["own_host"], values) is None:
            raise ObjectNotFound(f"there is no host {host}")
        values = {"host": host, "limit": limit}
        return HostSessions(sessions=rows.read(conn, HostSession, NOTABLE["sessions"], values))


def _subject(conn: PostgresConnection, bot: int) -> Subject:
    """Return whose BOT that is or was; others' do not exist."""
    found, key = curves.subject(conn, bot), auth.key()
    if found is None or not (key.is_operator or found.owner == key.owner):
        raise ObjectNotFound(f"there is no BOT {bot}")
    return found


def _grids(found: Mapping[str, Mapping[Happening, Curve]]) -> list[GridCurves]:
    return [
        GridCurves.model_validate({"grid": grid or None, **values})
        for grid, values in sorted(found.items())
    ]
