"""The verbs of `gridbot server`: start, stop, status, check."""

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import click
import psutil
from rich.console import Console

from gridbot_server.settings import Settings, default_data
from gridbot_server.storage import db, invariants
from gridbot_server.storage.invariants import NotChecked, Violation
from gridbot_server.supervision.lock_file import (
    StartError,
    child_records,
    health,
    supervisor_record,
    take_lock,
    take_over,
)
from gridbot_server.supervision.log_rotation import open_log, rotate_long
from gridbot_server.supervision.postgres import Postgres
from gridbot_server.supervision.processes import Record, last_lines, wait_gone
from gridbot_server.supervision.supervisor import EXPECTED, serve

_MOST_DAYS = 36_500
STOP_SECONDS = 180  # PostgreSQL may have a long checkpoint to write

data_option = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=lambda: default_data(os.environ, os.geteuid()),
    show_default="$GRIDBOT_DATA/server, or one of this user",
    help="The data directory.",
)


@click.group()
def server() -> None:
    """Run a work-dispatch server on this machine."""


@server.command()
@data_option
@click.option("--bind", metavar="ADDRESS:PORT", help="Where to listen  [127.0.0.1:8765]")
@click.option("--url", "public_url", help="The URL that clients are told  [http://BIND]")
@click.option("--dsn", help="Use this PostgreSQL; '' goes back to the embedded one.")
@click.option(
    "--sign-on-submit/--no-sign-on-submit", default=None, help="Sign what the operator submits."
)
@click.option("--project-name", metavar="NAME", help="What BOINC clients call it  [GridBot]")
@click.option(
    "--boinc-accounts/--no-boinc-accounts",
    default=None,
    help="Anybody may make a volunteer's account from a BOINC client.",
)
@click.option(
    "--keep-ended",
    "keep_ended_days",
    metavar="DAYS",
    callback=lambda _context, _option, text: _days(text),
    help="Delete BOTs so long after their end; '' keeps them  [for ever]",
)
@click.option("--behind-proxy/--no-behind-proxy", default=None, help="A proxy in front speaks TLS.")
@click.option("--foreground", is_flag=True, help="Stay in the terminal; ^C stops the server.")
def start(data: Path, foreground: bool, **chosen: Any) -> None:
    """Start the server; what is not given stays as it was last time."""
    with _expected_failures():
        before = Settings.load(data)
        settings = _choose(before, chosen)
        settings.make_directories()
        lock = take_lock(before)
        settings.save()
        if foreground:
            logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
            serve(settings, lock, lambda: _welcome(settings))
        else:
            _start_detached(settings, lock)
            _welcome(settings)


@server.command()
@data_option
def stop(data: Path) -> None:
    """Stop the server, or what a killed one left running."""
    with _expected_failures():
        settings = Settings.load(data)
        if found := supervisor_record(settings):
            _stop_supervisor(found)
            click.echo("stopped")
        elif settings.lock_path.exists() and child_records(settings):
            take_lock(settings)
            stopped = take_over(settings)
            click.echo(f"stopped what a killed server left running: {', '.join(stopped) or 'none'}")
        else:
            click.echo(f"no server runs in {settings.data}")


@server.command()
@data_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(data: Path, as_json: bool) -> None:
    """Show the server's processes and counts; exit 1 when it does not run."""
    with _expected_failures():
        found = _status(Settings.load(data))
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _show(found)
    if not found["running"]:
        sys.exit(1)


@server.command()
@data_option
@click.option("--dsn", help="Check this database instead of that of a data directory.")
@click.option("--idle", is_flag=True, help="No job runs: check what holds only then, too.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.IntRange(1),
    default=600,
    show_default=True,
    help="Give up when one query takes longer.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def check(data: Path, dsn: str | None, idle: bool, timeout: int, as_json: bool) -> None:
    """Check that the database keeps its invariants, and change nothing; exit 1 if one is broken.

    The server may run, or be stopped: then its own PostgreSQL runs for as long as this takes.
    """
    names = [name for name, _ in invariants.queries(idle)]
    with (
        _expected_failures(),
        nullcontext(dsn) if dsn else _database(Settings.load(data)) as found_dsn,
        db.connect(found_dsn, "gridbot-check", autocommit=True) as conn,
        Console(stderr=True).status("checking") as line,  # nothing where there is no terminal
    ):
        conn.execute("SELECT set_config('statement_timeout', %s, false)", [f"{timeout}s"])
        found = invariants.check(conn, idle=idle, tell=line.update)
    if as_json:
        document = {"checked": names, "violations": [asdict(item) for item in found]}
        click.echo(json.dumps(document, default=str))
    else:
        _show_violations(found, len(names))
    sys.exit(1 if found else 0)


@contextmanager
def _expected_failures() -> Iterator[None]:
    try:
        yield
    except (*EXPECTED, NotChecked, OSError) as error:
        raise click.ClickException(str(error)) from None


def _days(text: str | None) -> int | str | None:
    """A number of days; an empty text stays one, which takes a choice back."""
    if not text:
        return text
    if not (re.fullmatch("[0-9]{1,5}", text) and 1 <= int(text) <= _MOST_DAYS):
        raise click.BadParameter(f"a whole number from 1 to {_MOST_DAYS} is expected")
    return int(text)


def _choose(before: Settings, chosen: dict[str, Any]) -> Settings:
    given = {name: value for name, value in chosen.items() if value is not None}
    defaults = {field.name: field.default for field in fields(Settings)}
    # An empty text takes a choice back.
    changed: dict[str, Any] = {
        n: value if value != "" else defaults[n] for n, value in given.items()
    }
    return replace(before, **changed)


def _start_detached(settings: Settings, lock: int) -> None:
    """Start a supervisor in a session of its own, hand it the lock, wait until it is healthy."""
    log = settings.log / "supervisor.log"
    argv = [sys.executable, "-m", "gridbot_server.supervision.supervisor"]
    argv += ["--data", str(settings.data), "--lock", str(lock)]
    click.echo(f"starting the server in {settings.data} (log: {log})")
    rotate_long(log)
    with open_log(log) as output:
        said_before = output.tell()
        process = subprocess.Popen(
            argv,
            pass_fds=[lock],
            start_new_session=True,
            cwd=settings.data,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        while not _has_announced(settings, process.pid):
            if process.poll() is not None:
                said = last_lines(log, 20, said_before)
                raise StartError("\n".join([f"the server did not start; {log} says", *said]))
            _pause(process)
    except KeyboardInterrupt:
        process.terminate()
        raise


def _pause(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(0.1)
    except subprocess.TimeoutExpired:
        return


def _has_announced(settings: Settings, pid: int) -> bool:
    path = settings.endpoint_path
    return path.exists() and json.loads(path.read_text())["pid"] == pid


def _welcome(settings: Settings) -> None:
    found_unasked = settings.data == default_data(os.environ, os.geteuid())
    server_option = "" if found_unasked else f" --server {settings.url}"
    key_option = "" if found_unasked else f" --key-file {settings.operator_key_path}"
    click.echo(f"server ready at {settings.url}")
    click.echo(f"operator's key in {settings.operator_key_path}")
    click.echo(f"work for it:  gridbot client run{server_option}")
    click.echo(
        f"give it work: gridbot submit{server_option}{key_option} --range 1:10 --wait -- echo {{}}"
    )


def _stop_supervisor(found: Record) -> None:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(found.pid)
        process.terminate()
        wait_gone([process], STOP_SECONDS)
    if found.is_alive():
        raise StartError(
            f"pid {found.pid} did not stop within {STOP_SECONDS} s:"
            f" kill -9 {found.pid}, then stop again"
        )


def _status(settings: Settings) -> dict[str, Any]:
    supervisor = supervisor_record(settings)
    records = [*([supervisor] if supervisor else []), *child_records(settings)]
    return {
        "running": supervisor is not None,
        "url": settings.url,
        "data": str(settings.data),
        "processes": [_process_status(record) for record in records],
        "health": health(settings) if supervisor else None,
    }


def _process_status(record: Record) -> dict[str, Any]:
    return {
        "name": record.name,
        "pid": record.pid,
        "state": "up" if record.is_alive() else "down",
        "up_since": record.started_at,
        "restarts": record.restarts,
    }


def _show(found: dict[str, Any]) -> None:
    if found["running"]:
        click.echo(f"server at {found['url']}, data in {found['data']}")
    else:
        click.echo(f"no server runs in {found['data']}")
    for process in found["processes"]:
        click.echo(
            f"  {process['name']:<12} {process['pid']:>8} {process['state']:<5}"
            f" since {process['up_since']} restarts {process['restarts']}"
        )
    for name, value in (found["health"] or {}).items():
        click.echo(f"  {name}: {value}")
    if found["running"] and found["health"] is None:
        click.echo(f"  {found['url']}/health does not answer")


@contextmanager
def _database(settings: Settings) -> Iterator[str]:
    """The database of a server; the PostgreSQL of one that is stopped runs meanwhile."""
    if settings.dsn or supervisor_record(settings):
        yield settings.dsn_or_embedded
        return
    postgres = Postgres(settings.data)
    if not postgres.cluster.exists():
        raise StartError(f"no server was ever started in {settings.data}")
    if child_records(settings):
        raise StartError(
            f"a killed server left processes running: gridbot server stop --data {settings.data}"
        )
    lock = take_lock(settings)
    try:
        postgres.wait_ready(postgres.start(settings.log / "postgresql.log"))
        yield postgres.dsn
    finally:
        postgres.stop()
        os.close(lock)


def _show_violations(found: Sequence[Violation], checked: int) -> None:
    if found:
        click.echo("\n".join(map(str, found)))
        click.echo(f"{len(found)} of {checked} invariants broken")
    else:
        click.echo(f"all {checked} invariants hold")


if __name__ == "__main__":
    server()
