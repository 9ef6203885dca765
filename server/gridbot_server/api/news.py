"""News of the project: what an operator tells all volunteers, on pages and in BOINC's manager."""

from __future__ import annotations

from http import HTTPStatus

from flask import Blueprint

from gridbot_server.api.parameters import number
from gridbot_server.api.schema import answers, json_body, query
from gridbot_server.errors import ObjectNotFound
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.models.requests import NewNewsItem
from gridbot_server.models.responses.news import News, NewsItem, RemovedNewsItem
from gridbot_server.storage import rows, sql

SQL = sql.load("project_news.sql")

MOST_SHOWN = 20  # to everybody

blueprint = Blueprint("news", __name__, url_prefix="/api/v1/news")


@blueprint.get("")
@auth.rule("join")
@query(limit=number("How many at most.", default=MOST_SHOWN, most=1000))
@answers()
def list_news(limit: int) -> News:
    """List the project's news, the latest first."""
    return News(news=latest(limit))


@blueprint.post("")
@auth.rule("operator")
@json_body
@answers(HTTPStatus.CREATED)
def post_news(json: NewNewsItem) -> NewsItem:
    """Tell something to all volunteers.  Everybody may read it."""
    values = {"title": json.title, "text": json.text}
    with connection() as conn:
        (posted,) = rows.read(conn, NewsItem, SQL["post"], values)
    return posted


@blueprint.delete("/<int:item>")
@auth.rule("operator")
@answers()
def remove_news(item: int) -> RemovedNewsItem:
    """Withdraw an item of the news; who has read it has read it."""
    with connection() as conn:
        if rows.fetch_value(conn, int, SQL["remove"], {"id": item}) is None:
            raise ObjectNotFound(f"there is no item {item} of the news")
    return RemovedNewsItem(id=item)


def latest(limit: int = MOST_SHOWN) -> list[NewsItem]:
    """Return the latest items of the news, the last one first."""
    with connection() as conn:
        return rows.read(conn, NewsItem, SQL["latest"], {"limit": limit})
