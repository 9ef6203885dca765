"""`gridbot client start | stop | install | uninstall | leave`: a client that lives on."""

from __future__ import annotations

import os
from pathlib import Path

import click

from gridbot_client.commands.failure import NO_SERVER, Failed, failed, not_joined
from gridbot_client.commands.options import RESUMES, as_json, data_option, folder_of, tell
from gridbot_client.storage import FolderBusy
from gridbot_client.upkeep import background, service
from gridbot_client.upkeep.leaving import leave

_SERVICE = click.option(
    "--system/--user", "is_system", default=None,
    help="For the whole machine, or while you are logged in.  [default: --system if root]",
)  # fmt: skip


@click.command(context_settings={"ignore_unknown_options": True})
@data_option
@as_json
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def start(data: Path | None, as_json: bool, options: tuple[str, ...]) -> None:
    """Run the client in the background, until `stop`.

    OPTIONS are those of `run`.  It does not come back by itself after a restart of the machine.
    """
    folder = folder_of(data)
    try:
        process = background.start(folder, options)
    except background.NotStarted as error:
        raise Failed(str(error), error.exit_code) from None
    line = f"running as process {process}; its log: {folder.log}; to stop: gridbot client stop"
    tell(line, {"process": process, "log": str(folder.log)}, as_json=as_json)


@click.command(context_settings={"ignore_unknown_options": True})
@data_option
@_SERVICE
@as_json
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def install(
    data: Path | None, is_system: bool | None, as_json: bool, options: tuple[str, ...]
) -> None:
    """Make the client a systemd service, and start it.

    OPTIONS are those of `run`.  It comes back when the machine restarts, or the client crashes.
    A service of your own ends when you log out, unless an administrator says: loginctl
    enable-linger USER
    """
    folder, everywhere = folder_of(data), _is_for_system(is_system)
    if folder.identity() is None:
        raise not_joined("first: gridbot client join URL --key KEY, with the same --data")
    try:
        path = service.install(folder.path, options, is_system=everywhere)
    except (service.ServiceError, background.NotStopped) as error:
        raise failed(error) from None
    line = f"{service.NAME} runs, from {path}; to remove it: gridbot client uninstall"
    tell(line, {"service": service.NAME, "unit": str(path)}, as_json=as_json)


@click.command()
@_SERVICE
@as_json
def uninstall(is_system: bool | None, as_json: bool) -> None:
    """Stop and remove the service; the client's folder stays."""
    try:
        was_there = service.uninstall(is_system=_is_for_system(is_system))
    except service.ServiceError as error:
        raise failed(error) from None
    line = "removed" if was_there else "there is no such service"
    tell(line, {"removed": was_there}, as_json=as_json)


def _is_for_system(asked: bool | None) -> bool:
    return os.geteuid() == 0 if asked is None else asked


@click.command()
@data_option
@as_json
def stop(data: Path | None, as_json: bool) -> None:
    """Stop the client; the next start continues its replicas."""
    folder = folder_of(data)
    try:
        was_running = background.stop(folder)
    except background.NotStopped as error:
        raise failed(error) from None
    line = f"stopped; {RESUMES}" if was_running else "it was not running"
    tell(line, {"stopped": was_running}, as_json=as_json)


@click.command("leave")
@data_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
def leave_server(data: Path | None, yes: bool, as_json: bool) -> None:
    """Leave the server, and remove the client.

    Unfinished jobs are returned; the service, the keys and the folder are removed.  Finished jobs
    that are not reported yet are lost; the server sends them elsewhere.
    """
    folder = folder_of(data)
    identity = folder.identity()
    if identity is None:
        raise Failed(f"{folder.path} belongs to no client that has joined", NO_SERVER)
    if not yes:
        click.confirm(f"leave {identity.url} and remove {folder.path}?", abort=True)
    try:
        told = leave(folder)
    except (background.NotStopped, service.ServiceError, FolderBusy) as error:
        raise failed(error) from None
    tell(
        f"left: {told}; removed: {folder.path}",
        {"left": identity.url, "told": told, "removed": str(folder.path)},
        as_json=as_json,
    )
