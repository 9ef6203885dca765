"""The project's public page: what is computed, how to join, and who helps. Off by default."""

from __future__ import annotations

from typing import Any, NamedTuple

from flask import Response

from gridbot_server.api import news
from gridbot_server.console.blueprint import blueprint, page, shared
from gridbot_server.errors import ObjectNotFound
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.storage import rows, sql

SQL = sql.load("console.sql")

_SECONDS = 30.0
_MOST_LEADERS = 20


class ProjectFigures(NamedTuple):
    """What everybody may know."""

    bots_running: int
    jobs_done: int
    jobs_left: int
    clients_active: int
    credit: float


class Leader(NamedTuple):
    """A volunteer who agreed to be named."""

    name: str
    credit: float
    recent_credit: float
    team: str | None


@blueprint.get("/project")
@auth.rule("public")
def project_page() -> Response:
    """Show everybody what this project does, if its operator wants that."""
    settings = current().settings
    if not settings.public_page:
        raise ObjectNotFound("this project has no public page")
    auth.find_session()
    return page("project.html", shared(("project", "all"), _SECONDS, _figures))


def _figures() -> dict[str, Any]:
    settings = current().settings
    with connection() as conn:
        figures = rows.fetch_only(conn, ProjectFigures, SQL["project"])
        leaders = rows.fetch(conn, Leader, SQL["leaders"], {"limit": _MOST_LEADERS})
    return {
        "title": settings.project_name,
        "name": settings.project_name,
        "figures": figures,
        "leaders": leaders,
        "news": news.latest(),
        "url": settings.url,
        "has_accounts": settings.boinc_accounts,
    }
