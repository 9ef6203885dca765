"""`gridbot group …`: BOTs that share a label, followed, collected and cancelled together."""

from __future__ import annotations

import click

from gridbot.api.documents import GroupState
from gridbot.api.errors import GridbotError
from gridbot.api.session import Session
from gridbot.commands.options import as_json, print_json, say_away, with_session
from gridbot.printing import counted
from gridbot.show.collect import json_lines_of, lines_of_group
from gridbot.show.columns import columns
from gridbot.show.page import bots_table
from gridbot_client.quantities import TIME

_COLUMNS = (
    "name", "owner", "share", "bots", "bots_unfinished", "jobs_total", "jobs_done", "jobs_failed",
    "created_at",
)  # fmt: skip
NAME = click.argument("name")
OWNER = click.option("--owner", metavar="NAME", help="Whose group it is; for operators.")


@click.group()
def group() -> None:
    """List, show, wait for or cancel groups of BOTs; get their results as one stream.

    A group is the BOTs that were submitted with the same --group NAME.
    """


@group.command(name="list")
@as_json
@with_session
def list_groups(session: Session, as_json: bool) -> None:
    """List your groups, newest first."""
    found = session.groups()
    if as_json:
        print_json({"groups": found})
    elif found:
        click.echo(columns(found, _COLUMNS))
    else:
        click.echo("no groups; to begin one: gridbot submit --group NAME -- COMMAND")


@group.command()
@NAME
@OWNER
@as_json
@with_session
def show(session: Session, name: str, owner: str | None, as_json: bool) -> None:
    """Show a group's jobs and its BOTs."""
    chosen = session.group(name, owner)
    document, bots = chosen.show(), chosen.bots()
    if as_json:
        print_json({**document, "bot_list": [bot.document for bot in bots]})
    else:
        click.echo(_line(document))
        click.echo(bots_table(bots))


@group.command()
@NAME
@OWNER
@click.option(
    "--timeout",
    type=TIME,
    metavar="TIME",
    help="Stop waiting after this time, such as 90s or 2h, and exit with 5.  [default: no limit]",
)
@as_json
@with_session
def wait(
    session: Session, name: str, owner: str | None, timeout: float | None, as_json: bool
) -> None:
    """Wait until all BOTs of a group have ended.

    Exits with 1 if jobs failed or BOTs are held.
    """
    document = session.group(name, owner).wait(timeout, say_away)
    print_json(document) if as_json else click.echo(_line(document))
    if held := document["bots_held"]:
        raise GridbotError(f"{counted(held, 'BOT')} held; to see them: gridbot group show {name}")
    if failed := document["jobs_failed"] - document["jobs_cancelled"]:
        raise GridbotError(f"{failed} of {counted(document['jobs_total'], 'job')} failed")


@group.command()
@NAME
@OWNER
@click.option("--after", type=click.IntRange(0), default=0, metavar="N",
              help="Only results after number N of the group.  [default: all]")  # fmt: skip
@click.option("--follow", is_flag=True, help="Wait for further results until all BOTs have ended.")
@as_json
@with_session
def results(
    session: Session, name: str, owner: str | None, after: int, follow: bool, as_json: bool
) -> None:
    """Print the results of all BOTs of a group.

    They come in the order in which their jobs finished.  Columns are the number in the group, the
    BOT, the job, its arguments, its state, and the first line of its stdout.  With --json each
    result is a line with a JSON document.  The numbers stay right when BOTs come into the group
    later: --after N continues.
    """
    found = session.group(name, owner).results(follow, after, say_away)
    for line in json_lines_of(found) if as_json else lines_of_group(found):
        click.echo(line)


@group.command()
@NAME
@OWNER
@as_json
@with_session
def cancel(session: Session, name: str, owner: str | None, as_json: bool) -> None:
    """Cancel the BOTs of a group; results of finished jobs are kept."""
    _tell(session.group(name, owner).cancel(), as_json)


@group.command(name="set")
@NAME
@OWNER
@click.option(
    "--share",
    required=True,
    metavar="S|none",
    help="Part of your hosts, beside other groups with a share and all your other BOTs, which"
    " have 1 together; none: its BOTs are ordered by Rank, as all others.",
)
@as_json
@with_session
def set_share(session: Session, name: str, owner: str | None, share: str, as_json: bool) -> None:
    """Give a group a share of your hosts."""
    _tell(session.group(name, owner).set_share(_share(share)), as_json)


def _share(text: str) -> float | None:
    if text == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r}: write a number such as 2, or none") from None


def _tell(document: GroupState, as_json: bool) -> None:
    print_json(document) if as_json else click.echo(_line(document))


def _line(document: GroupState) -> str:
    share = "" if document["share"] is None else f", share {document['share']:g}"
    return (
        f"group {document['name']} of {document['owner']}: {counted(document['bots'], 'BOT')},"
        f" {document['bots_unfinished']} unfinished; {counted(document['jobs_total'], 'job')},"
        f" {document['jobs_done']} done, {document['jobs_failed']} failed{share}"
    )
