"""`gridbot data why`, `gridbot data invalidate`: where files come from, and what is not reused."""

from __future__ import annotations

import click

from gridbot.api.errors import NotFound
from gridbot.api.inputs import sha256_of
from gridbot.api.origin import FileOrigin, command_of, crate_of, origin_of
from gridbot.api.session import Session
from gridbot.commands.options import as_json, print_json, with_session
from gridbot.printing import counted
from gridbot_client.terminal import printable

FILE = click.argument("file", metavar="FILE|SHA256")


@click.command()
@FILE
@click.option("--crate", is_flag=True, help="Print it as RO-Crate (ro-crate-metadata.json).")
@as_json
@with_session
def why(session: Session, file: str, crate: bool, as_json: bool) -> None:
    """Show what made a file from what, down to what you sent.

    With --json also which jobs read it.
    """
    sha256 = sha256_of(file)
    if as_json and not crate:
        print_json(session.why(sha256))
        return
    try:
        found = origin_of(session, sha256)
    except NotFound as error:
        raise NotFound(f"{file}: {error}") from None
    if crate:
        print_json(crate_of(found))
        return
    for line in _lines(found, file):
        click.echo(printable(line))


def _lines(found: FileOrigin, file: str) -> list[str]:
    lines = []
    for depth, sha256, name in found.steps():
        job = found.made_by.get(sha256)
        by = "sent by you"
        if job is not None:
            command = command_of(job)
            by = f"job {job['job']} of BOT {job['bot']} ({job['name']}): {command}"
            by += ", invalidated" if job["invalidated"] else ""
        lines.append(f"{'  ' * depth}{name or file}  {sha256[:12]}  {by}")
    if not found.is_whole:
        lines.append("… and more")
    return lines


@click.command()
@FILE
@as_json
@with_session
def invalidate(session: Session, file: str, as_json: bool) -> None:
    """Let no answer be reused that is this file, or depends on it.

    Submit again with --reuse, or run the flow again: these jobs run, and no others.
    """
    found = session.invalidate(file)
    if as_json:
        print_json(found)
        return
    bots = counted(len(found["bots"]), "BOT")
    click.echo(f"{counted(found['jobs'], 'job')} of {bots} not reused any more")
    if found["jobs"]:
        click.echo("to run them again, submit with --reuse")


ORIGIN_COMMANDS = (why, invalidate)
