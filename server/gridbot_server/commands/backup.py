"""`gridbot server backup | restore | move`."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from gridbot_server.commands.data import (
    data_option,
    database_of,
    expected_failures,
    refuse_leftovers,
)
from gridbot_server.settings import Settings
from gridbot_server.storage import db, store_record
from gridbot_server.storage.disk import make_directory
from gridbot_server.supervision import archive, restoring
from gridbot_server.supervision.lock_file import StartError, supervisor_record, take_lock
from gridbot_server.supervision.restoring import LostContent

_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_FILE = click.Path(dir_okay=False, path_type=Path)
_MOST_TOLD = 20  # files that are gone


@click.command()
@click.argument("file", type=_FILE)
@data_option
@click.option(
    "--since",
    type=_FILE,
    metavar="FILE",
    help="Leave out the files that this earlier backup holds; a restore needs both, side by side.",
)
@_as_json
def backup(file: Path, data: Path, since: Path | None, as_json: bool) -> None:
    """Write database, files, keys and settings into one new archive.

    Files in an object store (--files s3://…) stay there.  The server may be running, and goes on.
    Only you can read the archive, since its keys are the
    operator's.  Exits with 1 if the database names files that are not there.

    \b
      gridbot server backup "gridbot-$(date +%F).tar"
      gridbot server backup monday.tar --since sunday.tar
    """  # click's mark for a block that is not wrapped
    settings = Settings.load(data)
    with (
        expected_failures(),
        database_of(settings) as dsn,
        Console(stderr=True).status("backup") as line,  # nothing where there is no terminal
    ):
        earlier = since.absolute() if since else None
        contents = archive.back_up(settings, dsn, file.absolute(), line.update, earlier)
    if as_json:
        click.echo(json.dumps({"file": str(file), **asdict(contents)}))
    else:
        click.echo(f"{file}: the database and {contents.files} files, {contents.bytes} bytes")
        if contents.objects:
            click.echo(f"{contents.objects} files stay in {settings.open_store()}: keep it, too")
    if contents.missing:
        raise click.ClickException(
            f"{contents.missing} files that the database names are not in"
            f" {settings.open_store()}; the backup holds all others"
        )


@click.command()
@click.argument("file", type=_FILE, required=False)
@data_option
@click.option("--dsn", metavar="DSN", help="An empty database to use.  [default: embedded]")
@click.option(
    "--in-place", is_flag=True, help="The database was restored by other tools: go on with it."
)
@_as_json
def restore(file: Path | None, data: Path, dsn: str | None, in_place: bool, as_json: bool) -> None:
    """Put a backup in the place of a stopped server.

    That may be another machine than the backup's.  What was in the data directory is moved aside,
    not deleted.  What was revoked or banned since the backup stays so.  Clients go on by
    themselves.  Start the server afterwards.
    """
    if (file is None) != in_place:
        raise click.UsageError("give either the FILE of a backup, or --in-place")
    if file is None:
        _restore_in_place(data, as_json)
        return
    with (
        expected_failures(),
        Console(stderr=True).status("restore") as line,
    ):
        settings = Settings(data=data.absolute(), dsn=dsn)
        make_directory(settings.data)
        refuse_leftovers(settings)
        lock = take_lock(settings)
        try:
            done = restoring.restore(settings, file.absolute(), line.update)
        finally:
            os.close(lock)
    if as_json:
        missing = [item._asdict() for item in done.missing]
        click.echo(json.dumps({**asdict(done), "missing": missing}))
        return
    click.echo(f"restored {done.bots} BOTs and {done.files} files, as of {done.made_at}")
    if done.missing:
        click.echo(_told(done.missing), err=True)
    if done.aside:
        click.echo(f"what was there before is in {done.aside}")
    click.echo(f"to start the server: gridbot server start --data {settings.data}")


def _told(missing: Sequence[LostContent]) -> str:
    """Name files that are gone, for an operator who may have them elsewhere."""
    lines = [f"{len(missing)} files that the database names are not in the store:"]
    for item in missing[:_MOST_TOLD]:
        of_bots = f", a result of BOT {', '.join(map(str, item.bots))}" if item.bots else ""
        owners = ", ".join(item.owners) or "nobody"
        lines.append(f"  {item.sha256}: {item.bytes} bytes, of {owners}{of_bots}")
    if len(missing) > _MOST_TOLD:
        lines.append("  and others: gridbot server restore --json lists all")
    return "\n".join(lines)


def _restore_in_place(data: Path, as_json: bool) -> None:
    """Go on with a database that was restored by other tools, and with the files that are here."""
    with expected_failures():
        settings = Settings.load(data)
        refuse_leftovers(settings)
        if supervisor_record(settings):
            raise StartError(f"stop the server first: gridbot server stop --data {data}")
        with database_of(settings) as dsn, db.connect(dsn, autocommit=True) as conn:
            db.migrate(conn)
            store_record.accept(conn, settings.open_store())
    if as_json:
        click.echo(json.dumps({"database": "accepted", "files": str(settings.open_store())}))
        return
    click.echo(
        "the database as it is now counts, in a new epoch; numbers since are not given again"
    )
    click.echo(f"to start the server: gridbot server start --data {settings.data}")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@data_option
def move(folder: Path, data: Path) -> None:
    """Move a stopped server's data directory to another FOLDER.

    To another disk or machine it goes by backup and restore.
    """
    with expected_failures():
        settings = Settings.load(data)
        if not settings.lock_path.exists():
            raise StartError(f"no server was ever started in {data}")
        refuse_leftovers(settings)
        lock = take_lock(settings)
        try:
            restoring.move(settings, folder.absolute())
        finally:
            os.close(lock)
    click.echo(f"to start the server: gridbot server start --data {folder}")
