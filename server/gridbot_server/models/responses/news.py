"""What the project tells its volunteers."""

from __future__ import annotations

from datetime import datetime

from gridbot_server.models.responses import ResponseModel


class NewsItem(ResponseModel):
    """`POST /news`: something that the project tells all its volunteers."""

    id: int
    title: str
    text: str
    posted_at: datetime


class News(ResponseModel):
    """`GET /news`: the latest first."""

    news: list[NewsItem]


class RemovedNewsItem(ResponseModel):
    """`DELETE /news/ID`."""

    id: int
