"""`gridbot news`: what the project tells all its volunteers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from gridbot.api.session import Session
from gridbot.commands.options import KEYS, as_json, print_each, print_json, with_session
from gridbot_client.terminal import printable


@click.group()
def news() -> None:
    """Post, list and remove news for all volunteers.

    BOINC's clients show them as notices, the console on the project's public page.
    """


@news.command()
@click.argument("title")
@click.argument("text")
@as_json
@with_session
def add(session: Session, title: str, text: str, as_json: bool) -> None:
    """Post TITLE and TEXT, which everybody may read.

    TEXT "-" is read from standard input.
    """
    if text == "-":
        text = sys.stdin.read().strip()
    document = session.connection.send("POST", "/news", {"title": title, "text": text})
    if as_json:
        print_json(document)
    else:
        click.echo(f"posted item {document['id']}; to withdraw it: gridbot news remove"
                   f" {document['id']}")  # fmt: skip


@news.command(name="list")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, metavar="N",
    help="Items at most.",
)  # fmt: skip
@as_json
@with_session
def list_news(session: Session, limit: int, as_json: bool) -> None:
    """List the news, the latest first."""
    items = session.connection.get(f"/news?limit={limit}")["news"]
    if as_json:
        print_json(items)
        return
    for item in items:
        click.echo(printable(f"{item['id']}  {item['posted_at'][:16]}  {item['title']}"))
        for line in item["text"].splitlines():
            click.echo(printable(f"    {line}"))


@news.command()
@KEYS
@as_json
@with_session
def remove(session: Session, numbers: Sequence[int], as_json: bool) -> None:
    """Withdraw items by their IDs.

    Clients show them until they look again, within four hours.
    """

    def removed(number: int) -> tuple[Mapping[str, Any], str]:
        document = session.connection.send("DELETE", f"/news/{number}")
        return document, f"item {number} is withdrawn"

    print_each("news", numbers, removed, as_json)
