"""Jobs that are streamed into an open BOT or appended to a growing one, or cancelled one by one."""

from __future__ import annotations

import binascii
import re
from http import HTTPStatus

import orjson
from flask import Blueprint, request

from gridbot_client.protocol.job_table import PART_JOBS
from gridbot_server.api.access import bot_owner
from gridbot_server.api.bots import project_signer, summary_of
from gridbot_server.api.parameters import Parameter, number
from gridbot_server.api.schema import JSON_LINES, answers, body_limit, json_body, query, takes
from gridbot_server.bots.cancelling import cancel_jobs
from gridbot_server.bots.submission import Appended, add_jobs
from gridbot_server.bots.validation import read_job
from gridbot_server.errors import RequestError, TooLarge
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.models.requests import MAX_JOBS_AT_ONCE, CancelledJobs
from gridbot_server.models.responses.bots import JobsAppended, JobsCancelled

_KEY = re.compile(r"[A-Za-z0-9-]{1,64}")


def _append_key(name: str, text: str) -> str:
    if not _KEY.fullmatch(text):
        raise RequestError(f"{name}: expected up to 64 letters, digits and -, got {text[:80]!r}")
    return text


blueprint = Blueprint("jobs", __name__, url_prefix="/api/v1/bots/<int:bot>")


@blueprint.post("/jobs")
@auth.rule("user")
@body_limit(lambda settings: settings.max_jobs_bytes)
@takes(JSON_LINES)
@query(
    offset=number("How many jobs the BOT has now.", required=True),
    key=Parameter(
        "Of this request; repeated, it appends nothing.  Without it, a request whose jobs are there"
        " already is taken as repeated.",
        {"type": "string", "pattern": "^[A-Za-z0-9-]{1,64}$"},
        _append_key,
    ),
)
@answers(errors=(HTTPStatus.CONFLICT,))
def append_jobs(bot: int, offset: int, key: str | None) -> JobsAppended:
    """Append JSON lines, one job each, to a BOT that has `offset` jobs.

    It is open, and its submission goes on, or growing, and they are sent to hosts at once.  To
    repeat such a request changes nothing.  A line `{"#signature": …}` signs the jobs since the last
    such line, at most 64.
    """
    with connection() as conn:
        owner = bot_owner(conn, bot)
        appended = _read_lines(request.get_data(cache=False), offset, key)
        stock = current().stock_clients
        made = add_jobs(conn, owner, bot, appended, stock, project_signer())
        return JobsAppended(jobs_total=made.jobs_total, first=made.first)


@blueprint.post("/jobs/cancel")
@auth.rule("user")
@json_body
@answers(errors=(HTTPStatus.CONFLICT,))
def cancel_some(bot: int, json: CancelledJobs) -> JobsCancelled:
    """Cancel single jobs; those that have an answer or have failed stay as they are."""
    with connection() as conn:
        bot_owner(conn, bot)  # nobody else may
        cancelled = cancel_jobs(conn, bot, json.jobs, json.unsent)
        return JobsCancelled(**dict(summary_of(conn, bot)), cancelled=cancelled)


def _read_lines(body: bytes, offset: int, key: str | None) -> Appended:
    lines = [line for line in body.split(b"\n") if line.strip()]
    if len(lines) > 2 * MAX_JOBS_AT_ONCE:
        raise TooLarge(f"{len(lines)} lines in one request, at most {2 * MAX_JOBS_AT_ONCE}")
    found = Appended(offset, [], [], [], key)
    for line in lines:
        number = offset + len(found.jobs)
        raw = _parse(line, number)
        if isinstance(raw, dict) and len(raw) == 1 and "#signature" in raw:
            _end_part(found, raw["#signature"], number)
        else:
            found.jobs.append(read_job(raw, number))
    if len(found.jobs) > MAX_JOBS_AT_ONCE:
        raise TooLarge(f"{len(found.jobs)} jobs in one request, at most {MAX_JOBS_AT_ONCE}")
    return found


def _end_part(found: Appended, signature: object, number: int) -> None:
    size = len(found.jobs) - sum(found.sizes)
    if not 1 <= size <= PART_JOBS:
        raise RequestError(
            f"before job {number}: a signature over {size} jobs; it signs 1 to {PART_JOBS}"
        )
    try:
        raw = binascii.a2b_base64(
            signature if isinstance(signature, str) else "*", strict_mode=True
        )
    except ValueError:
        raise RequestError(f"before job {number}: signature: expected base64") from None
    found.sizes.append(size)
    found.signatures.append(raw)


def _parse(line: bytes, number: int) -> object:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"job {number}: no JSON document: {error}") from None
