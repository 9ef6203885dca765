"""The commands of `gridbot server`: start, stop, status, check, and those of `backup.py`."""

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import click
import psutil
from rich.console import Console

from gridbot_client.net.discovery import remember_keys
from gridbot_server import metrics
from gridbot_server.commands.backup import backup, move, restore
from gridbot_server.commands.data import data_option, database_of, expected_failures
from gridbot_server.commands.serve import serve
from gridbot_server.commands.upgrade import upgrade
from gridbot_server.settings import MOST_TRANSITIONERS, Settings, default_data
from gridbot_server.storage import db, invariants
from gridbot_server.storage.invariants import Violation
from gridbot_server.supervision.lock_file import (
    StartError,
    child_records,
    health,
    supervisor_record,
    take_lock,
    take_over,
)
from gridbot_server.supervision.log_rotation import open_log, rotate_long
from gridbot_server.supervision.processes import ProcessRecord, last_lines, wait_gone
from gridbot_server.supervision.restoring import refuse_half_restored

_MOST_DAYS = 36_500
# What `status` calls the figures of GET /health, and what of it is no figure.
_FIGURES = {
    "jobs_unsent": "replicas unsent",
    "replicas_running": "replicas in progress",
    "jobs_undecided": "jobs to decide",
    "jobs_set_aside": "jobs set aside",
    "clients_active": "clients active",
    "inversions": "BOTs passed over",
}
_TOLD_APART = frozenset(("status", "trouble", "version", "project_key"))
STOP_SECONDS = 180  # PostgreSQL may have a long checkpoint to write


@click.group()
def server() -> None:
    """Start, stop, inspect and check a server on this machine."""


@server.command()
@data_option
@click.option(
    "--bind", metavar="ADDRESS:PORT", help="Address to listen on.  [default: 127.0.0.1:8765]"
)
@click.option(
    "--url",
    "public_url",
    metavar="URL",
    help="Public URL of the server, given to clients.  [default: http://ADDRESS:PORT]",
)
@click.option(
    "--dsn",
    metavar="DSN",
    help="PostgreSQL database to use, as a libpq connection string.  '' switches back to the"
    " embedded PostgreSQL.  [default: embedded]",
)
@click.option(
    "--files",
    "files_url",
    metavar="URL",
    help="Keep files in an object store: s3://BUCKET/PREFIX?endpoint=https://HOST.  Clients send"
    " and fetch them there.  '' switches back to the folder.  [default: folder]",
)
@click.option(
    "--sign-on-submit/--no-sign-on-submit",
    default=None,
    help="Sign BOTs that operators submit, with the private keys in the data directory."
    "  [default: off]",
)
@click.option(
    "--project-name",
    metavar="NAME",
    help="Name of the project in BOINC clients.  [default: GridBot]",
)
@click.option(
    "--boinc-accounts/--no-boinc-accounts",
    default=None,
    help="Let anybody create a volunteer's account from a BOINC client.  [default: off]",
)
@click.option(
    "--keep-ended",
    "keep_ended_days",
    metavar="DAYS",
    callback=lambda _context, _option, text: _days(text),
    help="Retention: delete BOTs this many days after their end.  '' keeps them for ever."
    "  [default: for ever]",
)
@click.option(
    "--transitioners",
    metavar="N",
    type=click.IntRange(1, MOST_TRANSITIONERS),
    help="Processes of this machine that decide what jobs need next; the BOTs are divided among"
    " those of all machines.  [default: 1]",
)
@click.option(
    "--behind-proxy/--no-behind-proxy",
    default=None,
    help="A reverse proxy terminates TLS in front of the server.  [default: off]",
)
@click.option("--foreground", is_flag=True, help="Run in the foreground; Ctrl-C stops the server.")
def start(data: Path, foreground: bool, **chosen: Any) -> None:
    """Start the server and wait until it is healthy.

    Options are saved; an option that is not given keeps the value of the last start, at first its
    default.
    """
    with expected_failures():
        before = Settings.load(data)
        settings = _choose(before, chosen)
        settings.terms_of_use()  # a fault of theirs is told now, not to those who make accounts
        settings.make_directories()
        lock = take_lock(before)
        refuse_half_restored(before)
        settings.save()
        remember_keys(settings.data)
        if foreground:
            logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
            serve(settings, lock, lambda: _welcome(settings))
        else:
            _start_detached(settings, lock)
            _welcome(settings)


@server.command()
@data_option
def stop(data: Path) -> None:
    """Stop the server, or processes that a killed server left running."""
    with expected_failures():
        settings = Settings.load(data)
        if found := supervisor_record(settings):
            _stop_supervisor(found)
            click.echo("stopped")
        elif settings.lock_path.exists() and child_records(settings):
            take_lock(settings)
            stopped = take_over(settings)
            names = ", ".join(stopped) or "none"
            click.echo(f"stopped processes that a killed server left running: {names}")
        else:
            click.echo(f"no server is running in {settings.data}")


@server.command()
@data_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(data: Path, as_json: bool) -> None:
    """Show the server's processes and counts.

    Exits with 1 if the server is not running.
    """
    with expected_failures():
        found = _status(Settings.load(data))
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _show(found)
    if not found["running"]:
        sys.exit(1)


@server.command()
@data_option
@click.option(
    "--dsn", metavar="DSN", help="Database to check.  [default: that of the data directory]"
)
@click.option(
    "--idle", is_flag=True, help="Also check invariants that hold only while no job is running."
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.IntRange(1),
    default=600,
    show_default=True,
    help="Time limit of one query.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def check(data: Path, dsn: str | None, idle: bool, timeout: int, as_json: bool) -> None:
    """Check the invariants of the database; read-only.

    The server may be running or stopped.  For a stopped one the embedded PostgreSQL is started for
    the duration of the check.  Exits with 1 if an invariant is violated.
    """
    names = [name for name, _ in invariants.queries(idle)]
    with (
        expected_failures(),
        nullcontext(dsn) if dsn else database_of(Settings.load(data)) as found_dsn,
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


def _days(text: str | None) -> int | str | None:
    """Number of days; "" resets the option to its default."""
    if not text:
        return text
    if not (re.fullmatch("[0-9]{1,5}", text) and 1 <= int(text) <= _MOST_DAYS):
        raise click.BadParameter(f"expected a whole number from 1 to {_MOST_DAYS}, got {text!r}")
    return int(text)


def _choose(before: Settings, chosen: dict[str, Any]) -> Settings:
    given = {name: value for name, value in chosen.items() if value is not None}
    defaults = {field.name: field.default for field in fields(Settings)}
    # "" resets an option to its default.
    changed: dict[str, Any] = {
        n: value if value != "" else defaults[n] for n, value in given.items()
    }
    return replace(before, **changed)


def _start_detached(settings: Settings, lock: int) -> None:
    """Start a supervisor in a session of its own, hand it the lock, wait until it is healthy."""
    log = settings.log / "supervisor.log"
    argv = [sys.executable, "-m", "gridbot_server.commands.serve"]
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
                raise StartError("\n".join([f"the server did not start; {log} ends:", *said]))
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
    click.echo(f"operator's key: {settings.operator_key_path}")
    if settings.sign_on_submit:
        click.echo(
            "--sign-on-submit:  who breaks into this server can sign for all clients, for the keys"
            " are here; to keep them away: --no-sign-on-submit, then gridbot app"
        )
    click.echo(f"to start a client: gridbot client start{server_option}")
    click.echo(
        f"to submit a BOT:   gridbot submit{server_option}{key_option} --range 1:10 --wait"
        " -- echo {}"
    )


def _stop_supervisor(found: ProcessRecord) -> None:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(found.pid)
        process.terminate()
        wait_gone([process], STOP_SECONDS)
    if found.is_alive():
        raise StartError(
            f"pid {found.pid} did not stop within {STOP_SECONDS} s;"
            f" kill it: kill -9 {found.pid}, then stop again"
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


def _process_status(record: ProcessRecord) -> dict[str, Any]:
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
        click.echo(f"no server is running in {found['data']}")
    for process in found["processes"]:
        click.echo(
            f"  {process['name']:<12} {process['pid']:>8} {process['state']:<5}"
            f" since {process['up_since']} restarts {process['restarts']}"
        )
    for line in _health_lines(found["health"] or {}):
        click.echo(f"  {line}")
    if found["running"] and found["health"] is None:
        click.echo(f"  {found['url']}/health does not answer")


def _health_lines(said: Mapping[str, Any]) -> Iterator[str]:
    """How the server does: its state, then its figures, with what this release does not know."""
    if "status" in said:
        trouble = f": {said['trouble']}" if said.get("trouble") else ""
        yield f"{said['status']}{trouble}, version {said.get('version')}"
    for name, value in said.items():
        if name not in _TOLD_APART:
            yield f"{_FIGURES.get(name, name.replace('_', ' ')) + ':':<22}{value}"


def _show_violations(found: Sequence[Violation], checked: int) -> None:
    if found:
        click.echo("\n".join(map(str, found)))
        click.echo(f"{len(found)} of {checked} invariants violated")
    else:
        click.echo(f"all {checked} invariants hold")


@server.command("dashboard")
def print_dashboard() -> None:
    """Print a dashboard for Grafana, as JSON.

    Import it there; its data come from GET /metrics.  Prometheus reads that with a key made by:
    gridbot token create OWNER --scope metrics
    """
    click.echo(metrics.dashboard(), nl=False)


server.add_command(backup)
server.add_command(restore)
server.add_command(move)
server.add_command(upgrade)

if __name__ == "__main__":
    server()
