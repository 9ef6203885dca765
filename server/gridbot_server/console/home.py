"""Home: how things stand in a sentence, and one's BOTs, those with trouble first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from flask import redirect, request
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response as BaseResponse

from gridbot_server.api.bots import list_bots
from gridbot_server.api.schema import call
from gridbot_server.api.workflows import list_workflows
from gridbot_server.console.blueprint import blueprint, live
from gridbot_server.console.errors import ask_to_log_in
from gridbot_server.console.operations import server_health
from gridbot_server.http import auth, sessions
from gridbot_server.http.services import connection
from gridbot_server.matching.progress import Standings, standing
from gridbot_server.models.responses.bots import BotSummary
from gridbot_server.storage import rows, sql

SQL = sql.load("console.sql")

# Unfinished BOTs, and ended ones, that are listed.
_MOST_LEFT, _MOST_ENDED = 50, 15
_MOST_WORKFLOWS = 10
_LOOKED_AT_FOR_PACE = 20


@dataclass(frozen=True, slots=True)
class ListedBot:
    """A BOT in the list, with its pace."""

    bot: BotSummary
    jobs_per_second: float | None

    @property
    def eta_seconds(self) -> float | None:
        """Seconds until it is done, if it gets on."""
        if self.bot.state != "running" or not self.jobs_per_second or not self.bot.jobs_running:
            return None
        return self.bot.jobs_left / self.jobs_per_second

    @property
    def trouble(self) -> str:
        """What somebody should look at."""
        if self.bot.held:
            return self.bot.held
        if self.bot.state == "running" and self.bot.jobs_silent:
            return f"silent hosts have {self.bot.jobs_silent} of its jobs"
        if failed := self.bot.jobs_failed - self.bot.jobs_cancelled:
            return f"{failed} {'job' if failed == 1 else 'jobs'} failed"
        return ""


@blueprint.get("/")
@auth.rule("public")
def home() -> BaseResponse:
    """Show Home to browsers; programs that speak JSON find nothing here."""
    accepted = request.accept_mimetypes
    if accepted["text/html"] <= accepted["application/json"] and request.query_string != b"live":
        raise NotFound
    if auth.find_session() is None:
        return ask_to_log_in(sessions.NotLoggedIn("log in first"))
    if auth.key().scope in ("join", "account"):  # they see no BOTs
        return redirect("/machines", HTTPStatus.SEE_OTHER)
    return _home()


@live("home.html", seconds=2.0)
def _home() -> dict[str, Any]:
    health = server_health()
    is_operator = auth.key().is_operator
    left = [bot for state in ("held", "running", "open") for bot in _listed(state, _MOST_LEFT)]
    ended = [bot for state in ("done", "cancelled") for bot in _listed(state, _MOST_ENDED)]
    ended.sort(key=lambda bot: bot.id, reverse=True)
    shown = _with_paces(left)
    shown.sort(key=lambda item: (not item.trouble, item.bot.state != "running", -item.bot.id))
    counts = Standings(
        running=sum(bot.state == "running" for bot in left),
        held=sum(bot.state == "held" for bot in left),
        failing=sum(bot.state == "running" and bot.jobs_failed > 0 for bot in left),
        silent=sum(bot.state == "running" and bot.jobs_silent > 0 for bot in left),
        trouble=health.trouble if is_operator else None,
    )
    return {
        "title": "Home",
        "verdict": standing(counts),
        "tone": "bad" if counts.trouble or counts.held else "warn" if counts.silent else "good",
        "health": health,
        "left": shown,
        "workflows": call(list_workflows, limit=_MOST_WORKFLOWS).workflows,
        "ended": [ListedBot(bot, None) for bot in ended[:_MOST_ENDED]],
        "is_operator": is_operator,
    }


def _listed(state: str, limit: int) -> Sequence[BotSummary]:
    found: Sequence[BotSummary] = call(list_bots, state=state, limit=limit).bots
    return found


def _with_paces(bots: Sequence[BotSummary]) -> list[ListedBot]:
    running = [bot.id for bot in bots if bot.state == "running"][:_LOOKED_AT_FOR_PACE]
    with connection() as conn:
        paces = rows.fetch_mapping(conn, SQL["paces"], {"bots": running})
    return [ListedBot(bot, paces.get(bot.id)) for bot in bots]
