"""Jobs that are streamed into an open BOT, a chunk per request."""

from __future__ import annotations

import orjson
from flask import Blueprint, request

from gridbot_server.api.access import bot_owner, number_argument
from gridbot_server.api.schema import body_limit
from gridbot_server.bots.submission import add_jobs
from gridbot_server.bots.validation import Job, read_job
from gridbot_server.errors import RequestError, TooLarge
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.models.requests import MAX_JOBS_AT_ONCE

blueprint = Blueprint("jobs", __name__, url_prefix="/api/v1/bots/<int:bot>")


@blueprint.post("/jobs")
@auth.rule("user")
@body_limit(lambda settings: settings.max_jobs_bytes)
def append_jobs(bot: int) -> dict[str, int]:
    """Append JSON lines, one job each, to a BOT that has `offset` jobs."""
    offset = number_argument("offset")
    with connection() as conn:
        owner = bot_owner(conn, bot)
        jobs = _read_lines(request.get_data(cache=False), first=offset)
        return {"jobs_total": add_jobs(conn, owner, bot, offset, jobs, current().stock_clients)}


def _read_lines(body: bytes, first: int) -> list[Job]:
    lines = [line for line in body.split(b"\n") if line.strip()]
    if len(lines) > MAX_JOBS_AT_ONCE:
        raise TooLarge(f"{len(lines)} jobs in one request, at most {MAX_JOBS_AT_ONCE}")
    return [read_job(_parse(line, number), number) for number, line in enumerate(lines, first)]


def _parse(line: bytes, number: int) -> object:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"job {number}: no JSON document: {error}") from None
