"""The commands of `gridbot client`."""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from gridbot_client import joining
from gridbot_client.activity import ActivityLog
from gridbot_client.backoff import Backoff
from gridbot_client.client import Client, Revoked
from gridbot_client.host import description
from gridbot_client.host.permission import UnreadablePolicy, read_policy, read_policy_file
from gridbot_client.joining import Pinning, own_fingerprints
from gridbot_client.net.discovery import (
    Endpoint,
    NoServer,
    data_directory,
    find_server,
    login_path,
    places_of_keys,
)
from gridbot_client.net.invitation import Invitation, InvitationError
from gridbot_client.net.transport import (
    NotOurServer,
    ServerUnavailable,
    TransportError,
    final_url,
)
from gridbot_client.options import Options
from gridbot_client.pilot import node_check
from gridbot_client.pilot.behaviour import IDLE_WINDOW_SECONDS, PilotOptions
from gridbot_client.pilot.secrecy import hide
from gridbot_client.preferences.watch import clock, preferred
from gridbot_client.protocol.fields import is_sha256
from gridbot_client.protocol.preferences import READERS, OwnerPreferences, PreferenceError, setting
from gridbot_client.quantities import SIZE, TIME, Quantity, seconds
from gridbot_client.standing import prospects_of, standing_of, told_of
from gridbot_client.status import status_of
from gridbot_client.storage import Folder, FolderBusy, Identity
from gridbot_client.terminal import printable
from gridbot_client.upkeep import background, service
from gridbot_client.upkeep.doctor import examine
from gridbot_client.upkeep.leaving import leave
from gridbot_client.walls.cells import CGROUP, NONE, PROCESS
from gridbot_client.work.confinement import WallOptions, hidden_places, raised
from gridbot_client.work.runner import forbid_core_dumps
from gridbot_policies.policy.owner import OwnerPolicy

_LOG_BYTES = 4 << 20
_MOST_PAUSE_SECONDS = 365 * 86400
_NOT_RUNNING = 3  # as systemctl's status, by the Linux Standard Base
_RESUMES = "the next run continues its replicas"


def _fingerprint(_: click.Context, option: click.Parameter, value: str) -> str:
    if value and not is_sha256(value):
        raise click.BadParameter(
            f"{value!r} is no fingerprint: 64 lower-case hex digits", param=option
        )
    return value


def _fingerprints(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(_fingerprint(context, option, value) for value in values)


data_option = click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the client; each running client needs its own."
    "  [default: client in GRIDBOT_DATA; /var/lib/gridbot if root; else ~/.local/share/gridbot]",
)
ALLOWED_PATH = click.Path(path_type=Path, exists=True)
trust_option = click.option(
    "--trust", "trusts", multiple=True, metavar="FINGERPRINT", callback=_fingerprints,
    help="Also run BOTs that this key signed, as its owner's `gridbot key list` shows it.  Another"
    " owner's needs an operator's key to join with.  Repeatable.",
)  # fmt: skip
project_key_option = click.option(
    "--project-key", metavar="FINGERPRINT", default="", callback=_fingerprint,
    help="Project key that the server must have.  [default: the one it shows at the join]",
)  # fmt: skip
key_option = click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File that holds a key of the server.  [default: GRIDBOT_KEY, or that of gridbot login]",
)


class NodeFault(click.ClickException):
    """A pilot's node failed its check."""

    exit_code = 3


class ServerFault(click.ClickException):
    """The server is unreachable or is not a GridBot server."""

    exit_code = 75  # sysexits' EX_TEMPFAIL


@click.group()
def client() -> None:
    """Run jobs of a GridBot server on this machine."""


@client.command()
@click.argument("url", metavar="URL|INVITATION")
@click.option("--key", metavar="KEY", help="Key of the server, such as a join key.")
@key_option
@trust_option
@project_key_option
@data_option
def join(
    url: str, key: str | None, key_file: Path | None, trusts: tuple[str, ...], project_key: str,
    data: Path | None,
) -> None:  # fmt: skip
    """Join the server at URL, or accept an INVITATION.

    `gridbot invite` prints an invitation.  This machine then runs the BOTs of the person who made
    it, and what the project signs: by giving this command you trust their keys.

    Without one, an operator creates a key: gridbot token create NAME --scope join

    With a join key the client runs what the project signs.  With a key of your own it also runs
    your BOTs: it trusts the signing keys that the server knows as yours at that moment.
    """
    folder = _folder(data)
    try:
        endpoint, pinning = _invited(url) or (
            Endpoint(url.rstrip("/"), key) if key else find_server(url, key_file),
            Pinning(project_key=project_key),
        )
        own = own_fingerprints(endpoint.url)
        endpoint = replace(endpoint, url=final_url(endpoint.url))
        pinning = replace(pinning, owners=(*pinning.owners, *trusts, *own))
        with folder.lock():
            identity = joining.join(folder, endpoint, pinning, _host(folder))
    except (
        NoServer, FolderBusy, InvitationError, joining.JoinError, TransportError,
    ) as error:  # fmt: skip
        raise click.ClickException(str(error)) from None
    click.echo(_joined(identity))
    click.echo(_trusted(identity))


def _invited(text: str) -> tuple[Endpoint, Pinning] | None:
    """Server, key and pins of an invitation; None for a URL.  Raises InvitationError."""
    if "#" not in text:
        return None
    found = Invitation.parse(text)
    return Endpoint(found.url, found.key), Pinning(found.owners, found.project_key, is_invited=True)


@client.command()
@click.argument("fingerprints", nargs=-1, required=True, callback=_fingerprints)
@data_option
def trust(fingerprints: tuple[str, ...], data: Path | None) -> None:
    """Run BOTs that the keys with these FINGERPRINTS signed.

    Compare a fingerprint with what `gridbot key list` shows its owner.
    """
    folder = _folder(data)
    try:
        with folder.lock():
            identity = folder.identity()
            if identity is None:
                raise click.ClickException("not joined yet; join with --trust FINGERPRINT")
            click.echo(_trusted(joining.trusting(folder, identity, fingerprints)))
    except FolderBusy:
        raise click.ClickException(
            f"a client (pid {folder.holder()}) is running: stop it, then trust the key"
        ) from None


@client.command()
@data_option
@click.option(
    "--server",
    metavar="URL",
    help="Server to join, if the client has not joined one."
    "  [default: GRIDBOT_SERVER, that of gridbot login, or the server on this machine]",
)
@key_option
@click.option(
    "--cpus", type=click.IntRange(1), metavar="N", help="CPU cores to use.  [default: all]"
)
@click.option(
    "--memory", type=SIZE, metavar="SIZE", help="Memory to use, such as 8GB.  [default: all]"
)
@trust_option
@project_key_option
@click.option(
    "--requirements",
    metavar="EXPR",
    help="Ask for work only while this ClassAd expression is true.  Kept for later runs; ''"
    " removes it.  Replicas already here run to their end.",
)
@click.option(
    "--policy", type=click.Path(path_type=Path), metavar="FILE",
    help="Like --requirements, from a file that defines Requirements and attributes it uses.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Ask for work once, run it, report, and exit.")
@click.option(
    "--exit-when-idle", type=TIME, metavar="TIME",
    help="Exit after this time without any replica.  [default: never]",
)  # fmt: skip
@click.option(
    "--dedicated",
    is_flag=True,
    help="Declare the machine dedicated: no other work preempts GridBot's.  Needs an operator's"
    " key.",
)
@click.option(
    "--pilot", metavar="NAME", is_flag=False, flag_value="pilot",
    help="Run as a pilot, a job of a cluster: return unfinished replicas at the end.",
)  # fmt: skip
@click.option(
    "--walltime",
    type=TIME,
    metavar="TIME",
    help="Time until the cluster ends the pilot; the pilot exits before.  [default: no limit]",
)
@click.option(
    "--low-cpu-after", type=Quantity("time", seconds, least=1), default=f"{IDLE_WINDOW_SECONDS:g}s",
    metavar="TIME", show_default=True,
    help="A pilot ends a job that used almost no CPU for this time, and exits.",
)  # fmt: skip
@click.option(
    "--sandbox", "most_walls", type=click.IntRange(NONE, CGROUP), default=CGROUP, metavar="LEVEL",
    help="Highest walls to use around tasks, 0 to 3.  [default: the best that works]",
)  # fmt: skip
@click.option(
    "--min-sandbox", "least_walls", type=click.IntRange(PROCESS, CGROUP), default=PROCESS,
    metavar="LEVEL", show_default=True,
    help="Refuse work of others where the walls are lower.",
)  # fmt: skip
@click.option(
    "--allow-network", is_flag=True, help="Allow the network to work of others that asks for it."
)
@click.option(
    "--allow-read", "reads", multiple=True, type=ALLOWED_PATH, metavar="PATH",
    envvar="GRIDBOT_ALLOW_READ", help="Let tasks read this, too.  Repeatable.",
)  # fmt: skip
@click.option(
    "--allow-write", "writes", multiple=True, type=ALLOWED_PATH, metavar="PATH",
    envvar="GRIDBOT_ALLOW_WRITE", help="Let tasks change this, too.  Repeatable.",
)  # fmt: skip
@click.option("--quiet", is_flag=True, help="Print errors only; the log has everything.")
def run(
    data: Path | None, server: str | None, key_file: Path | None, cpus: int | None,
    memory: int | None, trusts: tuple[str, ...], project_key: str, requirements: str | None,
    policy: Path | None,
    once: bool, exit_when_idle: float | None, dedicated: bool, pilot: str | None,
    walltime: float | None, low_cpu_after: float, most_walls: int, least_walls: int,
    allow_network: bool, reads: tuple[Path, ...], writes: tuple[Path, ...], quiet: bool,
) -> None:  # fmt: skip
    """Ask for work and run it until interrupted.  Joins the server first if necessary."""
    folder = _folder(data)
    try:
        owner_policy = _owner_policy(folder, requirements, policy)
        options = Options(
            room=description.room(cpus, memory), once=once, exit_when_idle=exit_when_idle,
            is_dedicated=dedicated, policy=owner_policy,
            pilot=_pilot(pilot, walltime, low_cpu_after, folder),
            walls=WallOptions(
                most=most_walls, least=least_walls, is_pilot=pilot is not None,
                allow_network=allow_network,
                reads=_allowed(reads, folder.path), writes=_allowed(writes, folder.path),
                hidden=_hidden(folder.path, key_file),
            ),
        )  # fmt: skip
        forbid_core_dumps()
        hide()
        signal.signal(signal.SIGTERM, _interrupt)
        with folder.lock():
            folder.save_policy(owner_policy.text if owner_policy else "")
            if sys.stdin.isatty():  # started by hand, so not in step with other clients
                folder.save_backoff(Backoff())
            activity = ActivityLog(_writer(folder, quiet), time.monotonic)
            _run(folder, server, key_file, Pinning(trusts, project_key), options, activity)
    except (ServerUnavailable, NotOurServer) as error:
        raise ServerFault(str(error)) from None
    except (
        NoServer, FolderBusy, joining.JoinError, Revoked, TransportError, UnreadablePolicy,
    ) as error:  # fmt: skip
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        if not quiet:
            click.echo(f"stopped; {_RESUMES}" if folder.identity() else "stopped")


@client.command()
@data_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(data: Path | None, as_json: bool) -> None:
    """Show the client's state, running jobs, server and owner's policy.

    Beside these, if the server answers, why an idle client gets no work, and what the machine's
    work came to.  Exits with 3 if the client is not running.
    """
    folder = _folder(data)
    found, standing, prospects = status_of(folder), standing_of(folder), prospects_of(folder)
    if as_json:
        told = prospects.json() if prospects else None
        click.echo(json.dumps({**found.json(), "answers": standing, "prospects": told}))
    else:
        lines = found.lines(prospects.idle() if prospects else "idle")
        lines += [prospects.earned()] if prospects else []
        click.echo("\n".join(map(printable, [*lines, *told_of(standing)])))
    sys.exit(0 if found.process is not None else _NOT_RUNNING)


@client.command()
@data_option
@key_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def doctor(data: Path | None, key_file: Path | None, as_json: bool) -> None:
    """Look for what keeps this machine from work.

    Prints a line for each thing, ok or BAD with the cure.  Exits with 1 if anything is BAD.
    """
    folder = _folder(data)
    walls = WallOptions(hidden=_hidden(folder.path, key_file))
    found = []
    for diagnosis in examine(folder, walls, key_file):
        found.append(diagnosis)
        if not as_json:
            click.echo(printable(diagnosis.line()))
    if as_json:
        click.echo(json.dumps([diagnosis.json() for diagnosis in found]))
    sys.exit(0 if all(diagnosis.is_ok for diagnosis in found) else 1)


@client.command(context_settings={"ignore_unknown_options": True})
@data_option
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def start(data: Path | None, options: tuple[str, ...]) -> None:
    """Run the client in the background, until `stop`.

    OPTIONS are those of `run`.  It does not come back by itself after a restart of the machine.
    """
    folder = _folder(data)
    try:
        process = background.start(folder, options)
    except background.NotStarted as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"running as process {process}; its log: {folder.log}; to stop: gridbot client stop")


SERVICE = click.option(
    "--system/--user", "is_system", default=None,
    help="For the whole machine, or while you are logged in.  [default: --system if root]",
)  # fmt: skip


@client.command(context_settings={"ignore_unknown_options": True})
@data_option
@SERVICE
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def install(data: Path | None, is_system: bool | None, options: tuple[str, ...]) -> None:
    """Make the client a systemd service, and start it.

    OPTIONS are those of `run`.  It comes back when the machine restarts, or the client crashes.
    A service of your own ends when you log out, unless an administrator says: loginctl
    enable-linger USER
    """
    folder, everywhere = _folder(data), _is_for_system(is_system)
    if folder.identity() is None:
        raise click.ClickException(
            "not joined yet; first: gridbot client join URL --key KEY, with the same --data"
        )
    try:
        path = service.install(folder.path, options, is_system=everywhere)
    except (service.ServiceError, background.NotStopped) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{service.NAME} runs, from {path}; to remove it: gridbot client uninstall")


@client.command()
@SERVICE
def uninstall(is_system: bool | None) -> None:
    """Stop and remove the service; the client's folder stays."""
    try:
        was_there = service.uninstall(is_system=_is_for_system(is_system))
    except service.ServiceError as error:
        raise click.ClickException(str(error)) from None
    click.echo("removed" if was_there else "there is no such service")


def _is_for_system(asked: bool | None) -> bool:
    return os.geteuid() == 0 if asked is None else asked


@client.command()
@data_option
def stop(data: Path | None) -> None:
    """Stop the client; the next start continues its replicas."""
    folder = _folder(data)
    try:
        was_running = background.stop(folder)
    except background.NotStopped as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"stopped; {_RESUMES}" if was_running else "it was not running")


@client.command("leave")
@data_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def leave_server(data: Path | None, yes: bool) -> None:
    """Leave the server, and remove the client.

    Unfinished jobs are returned; the service, the keys and the folder are removed.  Finished jobs
    that are not reported yet are lost; the server sends them elsewhere.
    """
    folder = _folder(data)
    identity = folder.identity()
    if identity is None:
        raise click.ClickException(f"{folder.path} belongs to no client that has joined")
    if not yes:
        click.confirm(f"leave {identity.url} and remove {folder.path}?", abort=True)
    try:
        told = leave(folder)
    except (background.NotStopped, service.ServiceError, FolderBusy) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"left: {told}; removed: {folder.path}")


@client.command()
@click.argument("duration", type=TIME, required=False)
@click.option("--until", metavar="HH:MM", help="Pause until this time of the day, at most a day.")
@data_option
def pause(duration: float | None, until: str | None, data: Path | None) -> None:
    """Start no further replicas, until `resume` or for a time.

    DURATION is such as 30m or 2h.  Without an end, running replicas finish and are reported.  With
    one they are suspended: they stay in memory, do not run, and go on afterwards.
    """
    if duration is not None and until:
        raise click.UsageError("DURATION and --until exclude each other; give one")
    folder, now = _folder(data), time.time()
    end = _after(duration, now) if duration is not None else _next(until, now) if until else None
    folder.make()
    folder.pause(end)
    said = f"paused until {clock(end)}" if end else "paused"
    click.echo(f"{said}; to continue: gridbot client resume")


def _after(duration: float, now: float) -> float:
    """When a pause of some seconds ends.  Raises UsageError."""
    if not 0 < duration <= _MOST_PAUSE_SECONDS:
        raise click.UsageError(
            f"a pause of {duration:g} s: give more than 0s and at most 365d, such as 30m or 2h"
        )
    return now + duration


def _next(time_of_day: str, now: float) -> float:
    """When the clock shows a time next.  Raises UsageError."""
    try:
        wanted = datetime.strptime(time_of_day, "%H:%M").time()  # noqa: DTZ007
    except ValueError:
        raise click.UsageError(f"--until {time_of_day!r}: give a time such as 18:00") from None
    today = datetime.fromtimestamp(now).date()  # noqa: DTZ006
    found = datetime.combine(today, wanted).timestamp()
    return found if found > now else datetime.combine(today + timedelta(1), wanted).timestamp()


@client.group()
def prefs() -> None:
    """Say when and how much this machine works.

    While a preference forbids work, what runs is suspended: it stays in memory.  What this machine
    prefers goes before what its account does (gridbot account prefs).

    \b
    hours=22:00-07:00     only then, by this machine's clock
    days=mon-fri,sun      only on these; "any" for these two overrides the account
    on-battery=no         not without mains
    idle-minutes=10       only when nobody used the machine for 10 minutes
    max-other-load=25     only while other programs use at most 25 % of the CPUs
    cpus=4                at most; or
    cpu-share=50          at most, per cent of the CPUs lent
    memory-in-use=25      per cent of the memory lent, while somebody uses the machine
    memory-when-idle=75   the same, while nobody does
    disk=20GB             for files and directories of BOTs that are kept for further jobs
    """


@prefs.command("set")
@click.argument("settings", nargs=-1, required=True, metavar="NAME=VALUE...")
@data_option
def set_prefs(settings: tuple[str, ...], data: Path | None) -> None:
    """Set preferences; a running client follows within seconds."""
    try:
        given = dict(map(setting, settings))
    except PreferenceError as error:
        raise click.UsageError(str(error)) from None
    _save_preferences(data, lambda kept: {**kept, **given})


@prefs.command("unset")
@click.argument("names", nargs=-1, required=True)
@data_option
def unset_prefs(names: tuple[str, ...], data: Path | None) -> None:
    """Forget preferences."""
    if unknown := [name for name in names if name not in READERS]:
        raise click.UsageError(f"{unknown[0]!r} is no preference; there are {', '.join(READERS)}")
    _save_preferences(data, lambda kept: {name: kept[name] for name in kept if name not in names})


@prefs.command("show")
@data_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show_prefs(data: Path | None, as_json: bool) -> None:
    """Show what is preferred, and who said it: this machine, or the account on the server."""
    found = preferred(_folder(data))
    document = {
        name: {"value": value, "of": found.origins[name]} for name, value in found.texts.items()
    }
    lines = found.lines() or ["nothing is preferred"]
    click.echo(json.dumps(document) if as_json else "\n".join(map(printable, lines)))


def _save_preferences(
    data: Path | None, changed: Callable[[dict[str, str]], dict[str, str]]
) -> None:
    folder = _folder(data)
    texts = changed(folder.preferences())
    try:
        OwnerPreferences.parse(texts)
    except PreferenceError as error:
        raise click.UsageError(str(error)) from None
    folder.make()
    folder.save_preferences(texts)
    click.echo(", ".join(f"{name}={value}" for name, value in texts.items()) or "none is left")


@client.command()
@data_option
def resume(data: Path | None) -> None:
    """Continue after `pause`, or ask the server at once.

    It ends the current back-off, as after an outage.
    """
    folder = _folder(data)
    folder.make()
    folder.paused_flag.unlink(missing_ok=True)
    folder.hurry_flag.touch()
    click.echo("resumed")


def _run(
    folder: Folder, server: str | None, key_file: Path | None, pinning: Pinning,
    options: Options, activity: ActivityLog,
) -> None:  # fmt: skip
    with raised(folder.path, options.walls) as (confinement, sandbox):
        folder.save_sandbox(sandbox.attributes)
        host, pilot = options.describe(folder, sandbox), options.pilot
        identity = folder.identity()
        if identity is None:
            endpoint = find_server(server, key_file)
            pilot_name = pilot.name if pilot else ""
            own = own_fingerprints(endpoint.url) if pilot is None else ()
            pinning = replace(pinning, owners=(*pinning.owners, *own))
            join = partial(joining.join, folder, endpoint, pinning, host, pilot=pilot_name)
            identity = joining.patiently(join, options.exit_when_idle, activity)
            activity.say(_joined(identity))
            activity.say(_trusted(identity))
        elif server and server.rstrip("/") != identity.url:
            raise joining.JoinError(
                f"{folder.path} belongs to a client of {identity.url}; name another folder with"
                f" --data DIR, or change the server: gridbot client join {server}"
            )
        else:
            owners = (*pinning.owners, *own_fingerprints(identity.url))
            identity = joining.trusting(folder, identity, owners)
            activity.say(
                f"working for {identity.url} as {identity.owner}, client {identity.client}"
            )
        if sandbox.warning:
            activity.say(f"warning: {sandbox.warning}")
        rejoin = _rejoiner(folder, identity, key_file, host, pilot.name if pilot else "")
        Client(folder, identity, options, activity, rejoin, confinement, sandbox).run()


def _allowed(paths: tuple[Path, ...], folder: Path) -> tuple[str, ...]:
    """Paths that tasks may see beside, as they really are; never of the client's folder."""
    own = folder.resolve()
    found = [path.resolve() for path in paths]
    for path in found:
        if path.is_relative_to(own):
            raise click.UsageError(f"{path} is in the client's folder, which no task may see")
    return tuple(map(str, found))


def _hidden(folder: Path, key_file: Path | None) -> tuple[str, ...]:
    usual = [login_path().parent, data_directory("server"), data_directory("overlay")]
    others = [*usual, *places_of_keys()]
    return hidden_places(folder, Path.home(), [*others, *([key_file] if key_file else [])])


def _pilot(
    name: str | None, walltime: float | None, low_cpu_after: float, folder: Folder
) -> PilotOptions | None:
    """Pilot settings from the options, or None.  Raises NodeFault if the node fails its check."""
    if name is None:
        if walltime is not None:
            raise click.UsageError("--walltime needs --pilot")
        return None
    folder.make()
    if trouble := node_check.trouble(folder.path):
        raise NodeFault(f"node check failed: {trouble}")
    ends_at = None if walltime is None else time.time() + walltime
    return PilotOptions(name=name, ends_at=ends_at, idle_window_seconds=low_cpu_after)


def _owner_policy(
    folder: Folder, requirements: str | None, file: Path | None
) -> OwnerPolicy | None:
    """Policy from the options, else the one kept from an earlier run."""
    if requirements is not None and file is not None:
        raise click.UsageError("--requirements and --policy exclude each other; give one")
    if file is not None:
        found = read_policy_file(file)
    elif requirements is None:
        return _kept_policy(folder)
    elif requirements.strip():
        found = read_policy(requirements, "--requirements")
    else:
        return None
    for warning in found.warnings():
        click.echo(f"warning: {warning}", err=True)
    return found


def _kept_policy(folder: Folder) -> OwnerPolicy | None:
    text = folder.policy()
    return read_policy(text, str(folder.policy_path)) if text else None


def _rejoiner(
    folder: Folder, identity: Identity, key_file: Path | None, host: dict[str, Any], pilot: str
) -> Callable[[], Identity | None]:
    """Function that joins again if the server forgot this client; None without a known key."""

    def rejoin() -> Identity | None:
        invitation = identity.invitation
        try:
            endpoint = (
                Endpoint(identity.url, invitation)
                if invitation
                else find_server(identity.url, key_file)
            )
        except NoServer:
            return None
        pinning = Pinning(identity.trusts, identity.project_key, is_invited=bool(invitation))
        return joining.join(folder, endpoint, pinning, host, pilot)

    return rejoin


def _folder(data: Path | None) -> Folder:
    return Folder((data or data_directory("client")).absolute())


def _host(folder: Folder) -> dict[str, Any]:
    return description.attributes(description.room(), folder.path)


def _joined(identity: Identity) -> str:
    return f"joined {identity.url} as {printable(identity.owner)}, client {identity.client}"


def _trusted(identity: Identity) -> str:
    """Whose BOTs run here, in words."""
    strangers = f"runs what project key {identity.project_key} signed"
    if not identity.trusts:
        return (
            f"{strangers}, and nothing else; to run your own BOTs here:"
            " gridbot client trust FINGERPRINT (gridbot key list shows it)"
        )
    return f"{strangers}, and the BOTs of {', '.join(identity.trusts)}"


def _writer(folder: Folder, quiet: bool) -> Callable[[str], None]:
    """Function that writes a line to the log, and to the terminal unless quiet."""
    handler = logging.handlers.RotatingFileHandler(folder.log, maxBytes=_LOG_BYTES, backupCount=1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.getLogger("gridbot_client")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False

    def write(line: str) -> None:
        logger.info("%s", line)
        if not quiet:
            click.echo(line)

    return write


def _interrupt(*_: object) -> NoReturn:
    # A second signal, such as one to the whole process group, must not interrupt the shutdown.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
