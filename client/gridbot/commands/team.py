"""`gridbot team`: teams of volunteers, whose credit is added up."""

from __future__ import annotations

import click

from gridbot.api.session import Session
from gridbot.commands.operator import tell_volunteer
from gridbot.commands.options import as_json, print_json, with_session
from gridbot.show.columns import columns


@click.group()
def team() -> None:
    """Create, join, leave and list teams of volunteers."""


@team.command()
@click.argument("name")
@as_json
@with_session
def create(session: Session, name: str, as_json: bool) -> None:
    """Create the team NAME and join it."""
    tell_volunteer(session.connection.send("POST", "/teams", {"name": name}), as_json)


@team.command()
@click.argument("name")
@as_json
@with_session
def join(session: Session, name: str, as_json: bool) -> None:
    """Join the team NAME; credit that you earn from now on counts for it."""
    tell_volunteer(session.connection.send("PATCH", "/volunteer", {"team": name}), as_json)


@team.command()
@as_json
@with_session
def leave(session: Session, as_json: bool) -> None:
    """Leave your team; credit that you earned for it stays with it."""
    tell_volunteer(session.connection.send("PATCH", "/volunteer", {"team": None}), as_json)


@team.command(name="list")
@as_json
@with_session
def list_teams(session: Session, as_json: bool) -> None:
    """List teams in descending order of credit."""
    document = session.connection.get("/teams")
    if as_json:
        print_json(document)
    else:
        names = ("name", "members", "credit", "recent_credit", "created_at")
        click.echo(columns(document["teams"], names))
