"""Jobs that are streamed into an open BOT, a chunk per request."""

from __future__ import annotations

from http import HTTPStatus

import orjson
from flask import Blueprint, request

from gridbot_server.api.access import bot_owner
from gridbot_server.api.parameters import number
from gridbot_server.api.schema import JSON_LINES, answers, body_limit, query, takes
from gridbot_server.bots.submission import add_jobs
from gridbot_server.bots.validation import JobSpec, read_job
from gridbot_server.errors import RequestError, TooLarge
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.models.requests import MAX_JOBS_AT_ONCE
from gridbot_server.models.responses.bots import JobsAppended

blueprint = Blueprint("jobs", __name__, url_prefix="/api/v1/bots/<int:bot>")


@blueprint.post("/jobs")
@auth.rule("user")
@body_limit(lambda settings: settings.max_jobs_bytes)
@takes(JSON_LINES)
@query(offset=number("How many jobs the BOT has now.", required=True))
@answers(errors=(HTTPStatus.CONFLICT,))
def append_jobs(bot: int, offset: int) -> JobsAppended:
    """Append JSON lines, one job each, to a BOT that has `offset` jobs."""
    with connection() as conn:
        owner = bot_owner(conn, bot)
        jobs = _read_lines(request.get_data(cache=False), first=offset)
        total = add_jobs(conn, owner, bot, offset, jobs, current().stock_clients)
        return JobsAppended(jobs_total=total)


def _read_lines(body: bytes, first: int) -> list[JobSpec]:
    lines = [line for line in body.split(b"\n") if line.strip()]
    if len(lines) > MAX_JOBS_AT_ONCE:
        raise TooLarge(f"{len(lines)} jobs in one request, at most {MAX_JOBS_AT_ONCE}")
    return [read_job(_parse(line, number), number) for number, line in enumerate(lines, first)]


def _parse(line: bytes, number: int) -> object:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"job {number}: no JSON document: {error}") from None
