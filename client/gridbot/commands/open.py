"""`gridbot open`: the console, in a browser that is logged in."""

from __future__ import annotations

import webbrowser

import click

from gridbot.api.session import Session
from gridbot.commands.options import as_json, print_json, say, with_session


@click.command(name="open")
@click.argument("number", metavar="[BOT]", type=click.IntRange(1), required=False)
@click.option("--print", "only_print", is_flag=True, help="Print the link, and open no browser.")
@as_json
@with_session
def open_(session: Session, number: int | None, only_print: bool, as_json: bool) -> None:
    """Open the server's console in your browser, at BOT's page if that is given.

    Prints a link that logs in once, within five minutes: give it to nobody.
    """
    if number is not None:
        session.bot(number).show()
    url: str = session.connection.send("POST", "/console/links", {})["url"]
    if number is not None:
        url += f"?next=/bots/{number}"
    if as_json:
        print_json({"url": url})
        return
    click.echo(url)
    if not only_print and not webbrowser.open(url):
        say("no browser opened: open this link in one, within five minutes")
