"""The operator's small verbs: hosts, people, keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from gridbot.commands.options import as_json, print_json, with_session
from gridbot.printing import table
from gridbot.session import Session
from gridbot.units import seconds

_HOST_COLUMNS = (
    "id",
    "name",
    "owner",
    "cpus",
    "memory",
    "platform",
    "clients",
    "replicas_running",
    "error_rate",
    "seen_at",
)


@click.command()
@as_json
@with_session
def hosts(session: Session, as_json: bool) -> None:
    """List the machines that are known: all for an operator, else your own."""
    document = session.connection.get("/hosts")
    if as_json:
        print_json(document)
    else:
        click.echo(_columns([_flat(host) for host in document["hosts"]], _HOST_COLUMNS))


@click.group()
def user() -> None:
    """Add and list people."""


@user.command(name="add")
@click.argument("name")
@click.option("--operator", is_flag=True, help="May see and change everything.")
@click.option("--share", type=click.FloatRange(0, min_open=True), help="Of the hosts [1].")
@click.option("--max-jobs", type=click.IntRange(1), help="Quota: jobs in unfinished BOTs.")
@as_json
@with_session
def add_user(session: Session, name: str, as_json: bool, **options: Any) -> None:
    """Add a person; a key is made with: gridbot token create NAME."""
    given = {key: value for key, value in options.items() if value}
    document = session.connection.send("POST", "/owners", {"name": name, **given})
    if as_json:
        print_json(document)
    else:
        click.echo(f"added {name}; make a key: gridbot token create {name}")


@user.command(name="list")
@as_json
@with_session
def list_users(session: Session, as_json: bool) -> None:
    """List the people who may submit."""
    document = session.connection.get("/owners")
    if as_json:
        print_json(document)
    else:
        click.echo(_columns(document["owners"], ("name", "operator", "share", "max_jobs")))


@click.group()
def token() -> None:
    """Create, revoke and list keys."""


@token.command()
@click.argument("owner")
@click.option(
    "--scope",
    type=click.Choice(["user", "operator", "join"]),
    default="user",
    show_default=True,
    help="join: may only join clients.",
)
@click.option("--label", default="", help="What it is for.")
@click.option("--expires", metavar="TIME", help="As 12h or 30d [never].")
@as_json
@with_session
def create(session: Session, owner: str, expires: str | None, as_json: bool, **rest: Any) -> None:
    """Make a key for OWNER and print it; it is shown only once."""
    body = {"owner": owner, **rest}
    if expires:
        body["expires_seconds"] = seconds(expires)
    document = session.connection.send("POST", "/tokens", body)
    if as_json:
        print_json(document)
    else:
        click.echo(document["token"])
        click.echo(f"key {document['id']}; it is not shown again", err=True)


@token.command()
@click.argument("number", metavar="ID", type=click.IntRange(1))
@with_session
def revoke(session: Session, number: int) -> None:
    """Revoke the key with this ID from now on."""
    session.connection.request("DELETE", f"/tokens/{number}")
    click.echo(f"key {number} is revoked")


@token.command(name="list")
@as_json
@with_session
def list_tokens(session: Session, as_json: bool) -> None:
    """List keys, without their secrets."""
    document = session.connection.get("/tokens")
    columns = ("id", "owner", "scope", "label", "created_at", "expires_at", "revoked_at")
    if as_json:
        print_json(document)
    else:
        click.echo(_columns(document["tokens"], columns))


def _flat(host: Mapping[str, Any]) -> dict[str, Any]:
    ad = host["attributes"]
    columns = {"cpus": "NumCpus", "memory": "Memory", "platform": "Platform"}
    return {**host, **{column: ad.get(name) for column, name in columns.items()}}


def _columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    header = [name.removesuffix("_at").replace("_", " ") for name in names]
    return table(header, [[_cell(name, row.get(name)) for name in names] for row in rows])


def _cell(name: str, value: object) -> object:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_at"):
        return datetime.fromisoformat(str(value)).astimezone().strftime("%Y-%m-%d %H:%M")
    return f"{value:.3g}" if isinstance(value, float) else value
