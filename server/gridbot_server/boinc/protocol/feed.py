"""The project's news as RSS 2.0, which BOINC's clients fetch and show as notices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime

from gridbot_server.credit.markup import block, element, escape


@dataclass(frozen=True, slots=True)
class FeedItem:
    """One item; `guid` tells it from all others, for ever."""

    guid: str
    title: str
    text: str  # its lines stay lines
    at: datetime


def feed(project: str, url: str, items: Iterable[FeedItem]) -> str:
    """The feed; `url` is the page for people that it belongs to."""
    channel = block(
        "channel",
        element("title", f"News of {project}"),
        element("link", url),
        element("description", f"What {project} tells its volunteers"),
        *(_item(item, url) for item in items),
    )
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<rss version="2.0">\n'
    return f"{head}{channel}</rss>\n"


def _item(item: FeedItem, url: str) -> str:
    """Title and description are HTML, hence escaped twice: clients show them as a page."""
    return block(
        "item",
        element("title", escape(item.title)),
        element("link", url),
        f'<guid isPermaLink="false">{escape(item.guid)}</guid>\n',
        element("description", "<br>".join(map(escape, item.text.splitlines()))),
        element("pubDate", format_datetime(item.at, usegmt=True)),
    )
