"""A job's page: its replicas one by one, with hosts, logs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson
from flask import redirect, request
from werkzeug.wrappers import Response as BaseResponse

from gridbot_server.api.bots import details_of
from gridbot_server.api.live import watched_output
from gridbot_server.api.results import logs_of
from gridbot_server.console import figures
from gridbot_server.console.blueprint import blueprint, live
from gridbot_server.console.bots import RunningReplica, WaitingCopy
from gridbot_server.console.files import ReturnedFile, shown_outputs
from gridbot_server.console.printed import PrintedText
from gridbot_server.errors import ObjectNotFound, RequestError
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.storage import rows, sql

SQL = sql.load("console.sql")

_MOST_REPLICAS = 50


class _Job(NamedTuple):
    args: str  # JSON
    inputs: str | None  # JSON
    canonical: int | None
    reason: str | None
    made_at: datetime | None


@blueprint.get("/bots/<int:bot>/jobs")
@auth.rule("console user")
def find_job(bot: int) -> BaseResponse:
    """Go to the page of a job by its number."""
    seq = request.args.get("seq", "").strip()
    if not (seq.isascii() and seq.isdigit() and len(seq) < 19):
        raise RequestError(f"seq: expected the number of a job, got {seq[:60]!r}")
    return redirect(f"/bots/{bot}/jobs/{int(seq)}")


@blueprint.get("/bots/<int:bot>/jobs/<int:seq>")
@auth.rule("console user")
@live("job.html", seconds=0.5)
def job_page(bot: int, seq: int) -> dict[str, Any]:
    """Show a job."""
    details = details_of(bot)
    values = {"bot": bot, "seq": seq, "limit": _MOST_REPLICAS}
    with connection() as conn:
        job = rows.fetch_one(conn, _Job, SQL["job"], values)
        if job is None:
            raise ObjectNotFound(f"BOT {bot} has no job {seq}")
        logs = logs_of(conn, bot, seq, _MOST_REPLICAS)
        running = rows.fetch(conn, RunningReplica, SQL["running"], values)
        copies = rows.fetch(conn, WaitingCopy, SQL["waiting_copies"], values)
        outputs = rows.fetch(conn, ReturnedFile, SQL["outputs"], values)
        printed = watched_output(conn, bot, seq) if running else []
    state = "done" if job.canonical is not None else "failed" if job.reason else "left"
    return {
        "title": f"Job {seq} · {details.name}",
        "bot": details,
        "seq": seq,
        "job": job,
        "state": state,
        "verdict": _verdict(job, running, copies, details.state),
        "args": orjson.loads(job.args),
        "inputs": [item.get("name") for item in orjson.loads(job.inputs or "[]")],
        "logs": logs,
        "running": running,
        "printed": [PrintedText.of(stream) for stream in printed if stream.content],
        "spans": figures.spans(
            [(log.how, log.sent_at, log.ended_at) for log in logs]
            + [("running", item.sent_at, None) for item in running],
            datetime.now(UTC),
        ),
        "outputs": shown_outputs(bot, seq, outputs),
    }


def _verdict(
    job: _Job, running: Sequence[RunningReplica], copies: Sequence[WaitingCopy], state: str
) -> str:
    if job.canonical is not None:
        return f"done: replica {job.canonical} gave its result"
    if job.reason:
        return f"failed for good: {job.reason}"
    if running:
        return "runs on " + ", ".join(item.host_name for item in running[:5])
    if copies:
        return f"a copy ({copies[0].why}) waits to be sent"
    if state in ("done", "cancelled"):
        return f"not run: the BOT is {state}"
    return "waits to be sent, or to be decided"
