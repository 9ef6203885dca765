"""A BOT's page: how far it is and why, its jobs, failures and hosts, and what to do about them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from flask import request

from gridbot_policies.policy.priority import NoPlace, priority_of, with_priority
from gridbot_server.api.bots import (
    cancel_bot,
    change_bot,
    close_bot,
    details_of,
    digest_failures,
    explained,
    hold_bot,
    resume_bot,
    retry_bot,
)
from gridbot_server.api.history import show_history
from gridbot_server.api.matching import MOST_AT_ONCE
from gridbot_server.api.schema import call
from gridbot_server.console import curves, figures
from gridbot_server.console.blueprint import action, blueprint, live, model, shared, viewer
from gridbot_server.console.words import duration
from gridbot_server.errors import RequestError
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.models.requests import BotChange, Retry
from gridbot_server.models.responses.bots import BotDetails
from gridbot_server.models.responses.explanation import Explanation
from gridbot_server.models.responses.history import BotHistory
from gridbot_server.storage import rows, sql

SQL = sql.load("console.sql")

_MOST_RUNNING = 40  # replicas on the time line
MOST_OF_TAIL = 40  # jobs that are left, from which on they are shown one by one
_EXPLAINED_SECONDS = 10.0  # for which a verdict is shown: it looks at many hosts
_DIGEST_SECONDS = 10.0
_HISTORY_SECONDS = 3.0
_MOST_DIGITS = 30  # of a number in a form


class RunningReplica(NamedTuple):
    """A replica in progress, and where."""

    seq: int
    replica: int
    why: str
    host: int
    host_name: str
    grid: str | None
    sent_at: datetime
    deadline: datetime
    is_silent: bool
    seconds: float  # since it was sent
    seen_seconds: float  # since its client was heard of
    progress: float | None  # from 0 to 1, as its program says


class WaitingCopy(NamedTuple):
    """A further replica that waits to be sent."""

    seq: int
    why: str
    pool: str | None
    seconds: float  # until it may be sent


@dataclass(frozen=True, slots=True)
class LastJob:
    """A job that is left, and what it waits for."""

    seq: int
    waits: str
    is_stuck: bool


@blueprint.get("/bots/<int:bot>")
@auth.rule("console user")
@live("bot.html")
def bot_page(bot: int) -> dict[str, Any]:
    """Show a BOT."""
    details = details_of(bot)
    explanation = explanation_of(bot)
    with connection() as conn:
        values = {"bot": bot, "seq": None, "limit": _MOST_RUNNING}
        running = rows.fetch(conn, RunningReplica, SQL["running"], values)
        copies = rows.fetch(conn, WaitingCopy, SQL["waiting_copies"], values)
        marks = rows.fetch_values(conn, float, SQL["policy_changes"], {"bot": bot})
    usual = details.mean_turnaround_seconds
    failures = shared((f"failures {bot}", viewer()), _DIGEST_SECONDS, lambda: _failures(bot))
    history = shared((f"history {bot}", viewer()), _HISTORY_SECONDS, lambda: _history(bot))
    tail = details.tail_since.timestamp() if details.tail_since else None
    return {
        "title": f"{details.progress.partition(',')[0]} · {details.name}",
        "bot": details,
        "explanation": explanation,
        "tone": tone_of(details, explanation),
        "parts": figures.parts(details),
        "running": running,
        "timeline": figures.timeline(running, usual),
        "tail": last_jobs(details, running, copies),
        "failures": failures,
        "curves": [curves.left(history, tail, marks), curves.throughput(history, tail, marks)],
        "grids": curves.totals(history),
        "slowest": history.slowest,
        "has_marks": bool(marks),
        "priority": priority_of(details.policy),
    }


def explanation_of(bot: int) -> Explanation:
    """Return why a BOT does not run, or that nothing is wrong; it may be some seconds old."""
    return shared(
        (f"explanation {bot}", viewer()), _EXPLAINED_SECONDS,
        lambda: explained(bot, most=MOST_AT_ONCE),
    )  # fmt: skip


def _history(bot: int) -> BotHistory:
    found: BotHistory = call(show_history, bot=bot, begin=None, end=None, step=None)
    return found


def _failures(bot: int) -> Any:
    return call(digest_failures, bot=bot).groups


def tone_of(bot: BotDetails, explanation: Explanation) -> str:
    """Return how the verdict is coloured; its words say the same."""
    if bot.state == "held" or bot.suspended:
        return "bad"
    if bot.state == "running" and bot.jobs_unsent and not explanation.hosts_matching:
        return "bad"
    if bot.jobs_failed > bot.jobs_cancelled or bot.jobs_silent:
        return "warn"
    return "good"


def last_jobs(
    bot: BotDetails, running: list[RunningReplica], copies: list[WaitingCopy]
) -> list[LastJob]:
    """Return what each of the last jobs waits for; nothing while many are left."""
    if bot.state != "running" or not 0 < bot.jobs_left <= MOST_OF_TAIL:
        return []
    waits = dict[int, list[str]]()
    stuck = dict[int, bool]()
    for replica in running:
        stuck[replica.seq] = stuck.get(replica.seq, True) and replica.is_silent
        waits.setdefault(replica.seq, []).append(_runs(replica, bot.mean_turnaround_seconds))
    for copy in copies:
        waits.setdefault(copy.seq, []).append(_is_sent(copy))
    return [
        LastJob(seq, "; ".join(texts), stuck.get(seq, False))
        for seq, texts in sorted(waits.items())
    ]


def _runs(replica: RunningReplica, usual: float | None) -> str:
    if replica.is_silent:
        return f"{replica.host_name} has it and is silent for {duration(replica.seen_seconds)}"
    compared = f", jobs usually take {duration(usual)}" if usual else ""
    return f"runs on {replica.host_name} for {duration(replica.seconds)}{compared}"


def _is_sent(copy: WaitingCopy) -> str:
    pool = " to a dedicated host" if copy.pool else ""
    later = " in a moment" if copy.seconds else ""
    return f"a copy ({copy.why}) waits to be sent{pool}{later}"


# ---------------------------------------------------------------------------------- actions


@blueprint.post("/bots/<int:bot>/hold")
@auth.rule("console user")
@action
def hold(bot: int) -> str:
    """Hold a BOT until it is resumed."""
    call(hold_bot, bot=bot)
    return _page(bot)


@blueprint.post("/bots/<int:bot>/resume")
@auth.rule("console user")
@action
def resume(bot: int) -> str:
    """Let a held BOT go on."""
    call(resume_bot, bot=bot)
    return _page(bot)


@blueprint.post("/bots/<int:bot>/cancel")
@auth.rule("console user")
@action
def cancel(bot: int) -> str:
    """Cancel a BOT, if the box of the form is ticked: that cannot be undone."""
    if request.form.get("confirm") != "yes":
        raise RequestError("tick the box to confirm: a cancelled BOT does not go on")
    call(cancel_bot, bot=bot)
    return _page(bot)


@blueprint.post("/bots/<int:bot>/close")
@auth.rule("console user")
@action
def close(bot: int) -> str:
    """Let a growing BOT take no more jobs."""
    call(close_bot, bot=bot)
    return _page(bot)


@blueprint.post("/bots/<int:bot>/retry")
@auth.rule("console user")
@action
def retry(bot: int) -> str:
    """Run failed jobs again: all, or the one that the form names."""
    job = request.form.get("job", "")
    call(retry_bot, bot=bot, json=model(Retry, {"jobs": [_number(job)] if job else None}))
    return _page(bot)


@blueprint.post("/bots/<int:bot>/name")
@auth.rule("console user")
@action
def rename(bot: int) -> str:
    """Give a BOT another name."""
    call(change_bot, bot=bot, json=model(BotChange, {"name": request.form.get("name")}))
    return _page(bot)


@blueprint.post("/bots/<int:bot>/priority")
@auth.rule("console user")
@action
def set_priority(bot: int) -> str:
    """Set how early a BOT is sent among those of its owner."""
    text = request.form.get("priority", "").strip()
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise RequestError(f"priority: expected a whole number, got {text[:60]!r}")
    try:
        policy = with_priority(details_of(bot).policy, int(text))
    except NoPlace as error:
        raise RequestError(str(error)) from None
    call(change_bot, bot=bot, json=model(BotChange, {"policy": policy}))
    return _page(bot)


def _number(text: str) -> int | str:
    """Return the number that stands in a field of a form, or else the text, to be refused."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if is_number else text


def _page(bot: int) -> str:
    return f"/bots/{bot}"
