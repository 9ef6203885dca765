"""`gridbot server upgrade`: what a newer release changes in a database, and who works with it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import click

from gridbot_server.commands.data import data_option, database_of, expected_failures
from gridbot_server.settings import Settings
from gridbot_server.storage import db, sql
from gridbot_server.storage.rows import fetch, fetch_value, fetch_values
from gridbot_server.supervision.lock_file import StartError, supervisor_record

SQL = sql.load("setup.sql")


class ClientVersion(NamedTuple):
    """A version, and how many clients of it asked for work in the last day."""

    version: str
    clients: int


@dataclass(frozen=True, slots=True)
class Outlook:
    """What an upgrade of a database to this release would do."""

    release: str  # this one
    schema: int  # of the database; 0: it has none
    newest: int  # that this release knows
    pending: list[str]  # migrations, in their order
    clients: list[ClientVersion]

    @property
    def obstacle(self) -> str:
        """Why this release cannot serve the database; "" if it can."""
        if self.schema <= self.newest:
            return ""
        return (
            f"the database has schema {self.schema}, and GridBot {self.release} knows"
            f" {self.newest}: install the release that made it, or a newer one"
        )


def look(conn: db.Connection) -> Outlook:
    """Compare a database with this release; changes nothing."""
    known = sql.migrations()
    newest = max(number for number, _, _ in known)
    if fetch_value(conn, str, SQL["has_schema"]) is None:
        return Outlook(version("gridbot"), 0, newest, [name for _, name, _ in known], [])
    there = set(fetch_values(conn, int, SQL["migrations"]))
    pending = [name for number, name, _ in known if number not in there]
    clients = fetch(conn, ClientVersion, SQL["client_versions"])
    return Outlook(version("gridbot"), max(there, default=0), newest, pending, clients)


@click.command()
@data_option
@click.option("--check", "only_check", is_flag=True, help="Change nothing; the server may run.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def upgrade(data: Path, only_check: bool, as_json: bool) -> None:
    """Bring the database of a stopped server to this release.

    `gridbot server start` does it, too.  With --check it says what would be done, and which clients
    there are.  Exits with 1 if this release cannot serve the database.

    \b
      gridbot server upgrade --check      # with the new release, while the old one serves
      gridbot server backup before.tar
    """  # click's mark for a block that is not wrapped
    settings = Settings.load(data)
    if not only_check and supervisor_record(settings):
        raise click.ClickException(f"stop the server first: gridbot server stop --data {data}")
    with (
        expected_failures(),
        database_of(settings) as dsn,
        db.connect(dsn, "gridbot-upgrade", autocommit=True) as conn,
    ):
        found = look(conn)
        if found.obstacle and not only_check:
            raise StartError(found.obstacle)
        if not only_check:
            db.migrate(conn)
    if as_json:
        clients = [client._asdict() for client in found.clients]
        click.echo(json.dumps({**asdict(found), "clients": clients, "obstacle": found.obstacle}))
    else:
        _show(found, only_check)
    sys.exit(1 if found.obstacle else 0)


def _show(found: Outlook, only_check: bool) -> None:
    click.echo(f"GridBot {found.release}, schema {found.newest}; the database has {found.schema}")
    for name in found.pending:
        click.echo(f"  {'to be made' if only_check else 'made'}: {name}")
    for client in found.clients:
        click.echo(f"  clients of version {client.version}, in the last day: {client.clients}")
    if found.obstacle:
        click.echo(found.obstacle)
    elif not found.pending:
        click.echo("there is nothing to be done")
