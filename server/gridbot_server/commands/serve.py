"""The main program of a server: its processes, put under a supervisor."""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import psycopg

from gridbot_server import metrics
from gridbot_server.commands import first_start
from gridbot_server.errors import StoreAway, StoreFull
from gridbot_server.settings import DATA_VARIABLE, Settings, SettingsError
from gridbot_server.signing.keys import KeyFileError
from gridbot_server.storage.embedded import PostgresError
from gridbot_server.storage.store_record import StoreMismatch
from gridbot_server.supervision.lock_file import StartError, take_lock
from gridbot_server.supervision.postgres import Postgres
from gridbot_server.supervision.processes import Child
from gridbot_server.supervision.supervisor import Supervisor

# Failures that one line explains; all others are defects and show where they are.
EXPECTED = (
    StartError, StoreMismatch, StoreAway, StoreFull, PostgresError, SettingsError, KeyFileError,
    psycopg.OperationalError,
)  # fmt: skip


def children(settings: Settings, environment: Mapping[str, str]) -> list[Child]:
    """List the processes of a server, in the order in which they start."""
    configuration = "python:gridbot_server.web.gunicorn_conf"
    data, counted = str(settings.data), str(settings.run / "metrics")
    programs = {
        "gunicorn": ["gunicorn", "-c", configuration, "gridbot_server.web.app:create_app()"],
        "feeder": ["gridbot_server.feeder.process", "--data", data],
        **{name: ["gridbot_server.cycles.process", "--data", data] for name in settings.daemons},
    }
    return [
        Child(
            name=name,
            argv=[sys.executable, "-m", *program],
            env={**environment, DATA_VARIABLE: data, metrics.FOLDER_VARIABLE: counted},
            directory=settings.data,
        )
        for name, program in programs.items()
    ]


def _begin_counting(folder: Path) -> None:
    """Let the metrics begin with zero: files of processes that are gone would be ever more."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("*.db"):
        file.unlink()


def serve(settings: Settings, lock: int, on_healthy: Callable[[], None]) -> None:
    """Run a whole server in the foreground; `lock` is what `take_lock` gave."""
    os.umask(0o077)
    _begin_counting(settings.run / "metrics")
    database = None if settings.dsn else Postgres(settings.data)
    supervisor = Supervisor(settings, lock, children(settings, os.environ), database)
    supervisor.run(first_start.prepare, on_healthy)


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True)
@click.option("--lock", type=int, help="A descriptor of the lock, taken by the caller.")
def main(data: Path, lock: int | None) -> None:
    """Run the server whose settings are in the data directory."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        settings = Settings.load(data)
        serve(settings, take_lock(settings) if lock is None else lock, lambda: None)
    except EXPECTED as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
