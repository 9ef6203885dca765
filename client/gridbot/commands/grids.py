"""`gridbot grid …`: the clusters to which constructors submit pilots."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import click

from gridbot.api.documents import GridState
from gridbot.api.session import Session
from gridbot.api.units import duration
from gridbot.commands.options import as_json, print_json, with_session
from gridbot.show.columns import columns

_COLUMNS = ("name", "kind", "cpus", "memory", "gpus", "walltime", "running", "queued", "free")


@click.group()
def grid() -> None:
    """List the grids, clusters that the overlay submits pilots to."""


@grid.command(name="list")
@click.option(
    "--match",
    metavar="EXPR",
    default="",
    help="Only grids of which this is true, as in a GridPolicy: 'Grid.Cpus >= 4'.",
)
@click.option("--glue2", is_flag=True, help="Print them as entities of GLUE 2.0, in JSON.")
@as_json
@with_session
def list_grids(session: Session, match: str, glue2: bool, as_json: bool) -> None:
    """List grids that may get pilots.

    It shows what a pilot has, how many run and wait, and how many may be added.
    A grid is listed for 15 minutes after its constructor told of it last.
    """
    if glue2:
        print_json(session.connection.get("/grids/glue2", match=match))
        return
    found = session.grids(match)
    if as_json:
        print_json({"grids": found})
    elif found:
        click.echo(columns([_row(item) for item in found], _COLUMNS))
    else:
        click.echo("no grids; operators add them: gridbot overlay --help")


def _row(told: GridState) -> Mapping[str, Any]:
    ad = told["ad"]
    memory, walltime = ad.get("Memory"), ad.get("Walltime")
    return {
        "name": told["name"],
        "kind": ad.get("Kind"),
        "cpus": ad.get("Cpus"),
        "memory": memory and f"{memory} MB",
        "gpus": ad.get("Gpus"),
        "walltime": walltime and duration(timedelta(seconds=walltime)),
        "running": ad.get("Running"),
        "queued": ad.get("Queued"),
        "free": ad.get("FreeSlots"),
    }
