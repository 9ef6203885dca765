"""What must be true of the database whatever was killed; `storage/sql/invariants.sql` says it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from gridbot_server.settings import Settings, default_data
from gridbot_server.storage import db, sql
from gridbot_server.storage.db import Connection

_QUIET = b"-- quiet\n"  # in a query: it holds only while nothing is left for the daemons to do


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold, and some of the rows that break it."""

    name: str
    rows: Sequence[Any]

    def __str__(self) -> str:
        return "\n  ".join([f"{self.name}: broken by", *map(str, self.rows)])


def check(conn: Connection, *, quiet: bool) -> list[Violation]:
    """Return what does not hold, all in one snapshot; `quiet` says that the daemons are idle."""
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        found = [Violation(name, conn.execute(text).fetchall()) for name, text in queries(quiet)]
    return [violation for violation in found if violation.rows]


def queries(quiet: bool) -> list[tuple[str, bytes]]:
    """Return the invariants' names and queries; with `quiet` those that need it too."""
    listed = sql.load("invariants.sql").items()
    return [(name, text) for name, text in listed if quiet or not text.startswith(_QUIET)]


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Data directory of the server.")
@click.option("--dsn", help="The database itself, instead of a server's data directory.")
@click.option("--quiet", is_flag=True, help="Nothing goes on: check what holds only then, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one document.")
def command(data: Path | None, dsn: str | None, quiet: bool, as_json: bool) -> None:
    """Say which invariants do not hold, also of a server at work; exit code 1 if any."""
    settings = Settings.load(data or default_data(os.environ, os.getuid()))
    with db.connect(dsn or settings.dsn_or_embedded, "invariants", autocommit=True) as conn:
        found = check(conn, quiet=quiet)
    checked = [name for name, _ in queries(quiet)]
    if as_json:
        document = {"checked": checked, "violations": [asdict(item) for item in found]}
        click.echo(json.dumps(document, default=str))
    else:
        click.echo("\n".join(map(str, found)) or f"all {len(checked)} invariants hold")
    sys.exit(1 if found else 0)
