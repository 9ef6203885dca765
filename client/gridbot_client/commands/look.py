"""`gridbot client status | doctor`: how the machine does."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from gridbot_client.commands.friends import friend_lines, friends_told
from gridbot_client.commands.options import (
    as_json,
    data_option,
    folder_of,
    hidden_from_tasks,
    key_option,
)
from gridbot_client.installation import release, update_advice
from gridbot_client.standing import UNTOLD, prospects_of, standing_of, told_of
from gridbot_client.status import status_of
from gridbot_client.terminal import printable
from gridbot_client.upkeep.doctor import examine, examine_node
from gridbot_client.work.confinement import WallOptions

_NOT_RUNNING = 3  # as systemctl's status, by the Linux Standard Base


@click.command()
@data_option
@as_json
def status(data: Path | None, as_json: bool) -> None:
    """Show the client's state, running jobs, server and owner's policy.

    Beside these, if the server answers, why an idle client gets no work, and what the machine's
    work came to.  Exits with 3 if the client is not running.
    """
    folder = folder_of(data)
    found, standing, prospects = status_of(folder), standing_of(folder), prospects_of(folder)
    if as_json:
        told = prospects.json() if prospects else None
        told_more = {"answers": standing, "prospects": told, "friends": friends_told(folder)}
        click.echo(json.dumps({**found.json(), **told_more}))
    else:
        lines = found.lines(prospects.idle() if prospects else UNTOLD)
        lines += [*friend_lines(folder), *([prospects.earned()] if prospects else [])]
        if prospects and (advice := update_advice(prospects.release)):
            lines.append(f"GridBot {release()}: {advice}")
        click.echo("\n".join(map(printable, [*lines, *told_of(standing)])))
    sys.exit(0 if found.process is not None else _NOT_RUNNING)


@click.command()
@data_option
@key_option
@as_json
@click.option(
    "--pilot", metavar="URL",
    help="Examine a cluster's node for pilots of the server at URL instead.",
)  # fmt: skip
def doctor(data: Path | None, key_file: Path | None, pilot: str | None, as_json: bool) -> None:
    """Look for what keeps this machine from work.

    Prints a line for each thing, ok or BAD with the cure.  Exits with 1 if anything is BAD.
    """
    folder = folder_of(data)
    walls = WallOptions(hidden=hidden_from_tasks(folder.path, key_file))
    looks = examine_node(folder, pilot) if pilot else examine(folder, walls, key_file)
    found = []
    for diagnosis in looks:
        found.append(diagnosis)
        if not as_json:
            click.echo(printable(diagnosis.line()))
    if as_json:
        click.echo(json.dumps([diagnosis.json() for diagnosis in found]))
    sys.exit(0 if all(diagnosis.is_ok for diagnosis in found) else 1)
