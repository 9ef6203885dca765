"""`gridbot account`: what holds for all machines of an account."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from gridbot.api.errors import BadInput
from gridbot.api.session import Session
from gridbot.commands.options import as_json, print_json, with_session
from gridbot_client.protocol.preferences import (
    MAX_SHARE,
    READERS,
    VENUES,
    PreferenceError,
    settings,
)
from gridbot_client.terminal import printable

_PATH, _NOTICES = "/account/preferences", "/account/notices"
_VENUE = click.option(
    "--venue", type=click.Choice(VENUES), default="default", show_default=True,
    help="Where: hosts at a venue with preferences of its own follow these alone.",
)  # fmt: skip


@click.group()
def account() -> None:
    """Say what holds for all your machines."""


@account.group()
def prefs() -> None:
    """Say when and how much all your machines work.

    Names and values are those of `gridbot client prefs`.  A machine's own preferences go before
    them.  To say where a machine stands: gridbot host set HOST --venue home
    """


@prefs.command("set")
@click.argument("texts", nargs=-1, required=True, metavar="NAME=VALUE...")
@_VENUE
@as_json
@with_session
def set_prefs(session: Session, texts: tuple[str, ...], venue: str, as_json: bool) -> None:
    """Set preferences; clients follow when they ask next."""
    try:
        given = settings(texts)
    except PreferenceError as error:
        raise BadInput(str(error)) from None
    _change(session, venue, given, as_json)


@prefs.command("unset")
@click.argument("names", nargs=-1, required=True, type=click.Choice(list(READERS)))
@_VENUE
@as_json
@with_session
def unset_prefs(session: Session, names: tuple[str, ...], venue: str, as_json: bool) -> None:
    """Forget preferences."""
    _change(session, venue, dict.fromkeys(names), as_json)


@prefs.command("show")
@as_json
@with_session
def show_prefs(session: Session, as_json: bool) -> None:
    """Show what is preferred, by venue."""
    _tell(session.connection.get(_PATH), as_json)


@prefs.command("share")
@click.argument("share", type=click.FloatRange(0, MAX_SHARE), required=False)
@_VENUE
@as_json
@with_session
def set_share(session: Session, share: float | None, venue: str, as_json: bool) -> None:
    """Set the resource share of BOINC clients: 50 beside another project's 100 is a third.

    Without SHARE it is forgotten: then the default one holds at a venue, and by default 100.
    """
    _tell(session.connection.send("PATCH", _PATH, {"shares": {venue: share}}), as_json)


def _change(
    session: Session, venue: str, preferences: Mapping[str, str | None], as_json: bool
) -> None:
    body = {"venue": venue, "preferences": preferences}
    _tell(session.connection.send("PATCH", _PATH, body), as_json)


def _tell(document: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    shares = document.get("shares", {})  # older servers know none
    for venue in VENUES:
        if venue in shares:
            click.echo(f"{venue}: resource share {shares[venue]:g}")
        texts = document["venues"].get(venue, {})
        for name, value in texts.items():
            click.echo(printable(f"{venue}: {name}={value}"))
    if not (document["venues"] or shares):
        click.echo("nothing is preferred")


@account.group()
def notices() -> None:
    """Say who is told when a BOT of yours ends or is held.

    Addresses of operators are told as well when the server needs attention.
    """


@notices.command("add")
@click.argument("url", metavar="https://HOST/PATH|mailto:NAME@HOST")
@as_json
@with_session
def add_address(session: Session, url: str, as_json: bool) -> None:
    """Add a webhook or a mailbox.

    A mailbox is mailed a code first, which `confirm` takes; to add it once more mails another.

    What is posted to a webhook is JSON.  Its header GridBot-Signature is sha256= and the
    HMAC-SHA256 of the body under the secret that this prints once; GridBot-Notice is a number by
    which you know a notice again that comes twice.
    """
    made = session.connection.send("POST", _NOTICES, {"url": url})
    if as_json:
        print_json(made)
    else:
        click.echo(f"{made['id']}: {printable(made['url'])}")
        if not made["confirmed"]:
            click.echo("a code is mailed there, and nothing else until you show it:")
            click.echo(f"    gridbot account notices confirm {made['id']} CODE")
        else:
            click.echo(f"secret, shown this once: {made['secret']}")


@notices.command("list")
@as_json
@with_session
def list_addresses(session: Session, as_json: bool) -> None:
    """List your addresses, and whether what was sent there arrived."""
    found = session.connection.get(_NOTICES)["addresses"]
    if as_json:
        print_json({"addresses": found})
        return
    for item in found:
        fault = f": {printable(item['error'])}" if item["error"] else ""
        unconfirmed = "" if item["confirmed"] else ", not confirmed"
        waiting = f", {item['waiting']} waiting" if item["waiting"] else ""
        dropped = f", {item['dropped']} older ones dropped" if item["dropped"] else ""
        click.echo(f"{item['id']}  {printable(item['url'])}{unconfirmed}{waiting}{dropped}{fault}")
    if not found:
        click.echo("none; to add one: gridbot account notices add https://HOST/PATH")


@notices.command("confirm")
@click.argument("number", metavar="ID", type=click.IntRange(1))
@click.argument("code")
@as_json
@with_session
def confirm_address(session: Session, number: int, code: str, as_json: bool) -> None:
    """Show the code that was mailed to a mailbox."""
    found = session.connection.send("POST", f"{_NOTICES}/{number}/confirm", {"code": code})
    print_json(found) if as_json else click.echo(f"{number} is confirmed")


@notices.command("remove")
@click.argument("number", metavar="ID", type=click.IntRange(1))
@as_json
@with_session
def remove_address(session: Session, number: int, as_json: bool) -> None:
    """Tell an address nothing more."""
    found = session.connection.send("DELETE", f"{_NOTICES}/{number}", None)
    print_json(found) if as_json else click.echo(f"{number} is removed")
