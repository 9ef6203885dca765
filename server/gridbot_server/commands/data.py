"""The data directory that a command is given: the option, its database, and expected failures."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from gridbot_server.commands.serve import EXPECTED
from gridbot_server.settings import Settings, default_data
from gridbot_server.storage.invariants import NotChecked
from gridbot_server.supervision.archive import ArchiveError
from gridbot_server.supervision.lock_file import (
    StartError,
    child_records,
    supervisor_record,
    take_lock,
)
from gridbot_server.supervision.postgres import Postgres

data_option = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=lambda: default_data(os.environ, os.geteuid()),
    metavar="DIR",
    help="Data directory of the server."
    "  [default: server in GRIDBOT_DATA; /var/lib/gridbot if root; else ~/.local/share/gridbot]",
)


@contextmanager
def expected_failures() -> Iterator[None]:
    """Turn failures that one line explains into that line."""
    try:
        yield
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise click.ClickException(f"{place}{error.strerror or error}") from None
    except (*EXPECTED, NotChecked, ArchiveError) as error:
        raise click.ClickException(str(error)) from None


def refuse_leftovers(settings: Settings) -> None:
    """Raise StartError where processes of a killed server still run."""
    if not supervisor_record(settings) and child_records(settings):
        raise StartError(
            "a killed server left processes running; stop them first:"
            f" gridbot server stop --data {settings.data}"
        )


@contextmanager
def database_of(settings: Settings) -> Iterator[str]:
    """DSN of a server's database; starts the embedded PostgreSQL of a stopped server meanwhile."""
    if settings.dsn or supervisor_record(settings):
        yield settings.dsn_or_embedded
        return
    postgres = Postgres(settings.data)
    if not postgres.cluster.exists():
        raise StartError(f"no server was ever started in {settings.data}")
    refuse_leftovers(settings)
    lock = take_lock(settings)
    try:
        postgres.wait_ready(postgres.start(settings.log / "postgresql.log"))
        yield postgres.dsn
    finally:
        postgres.stop()
        os.close(lock)
