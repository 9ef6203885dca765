"""`gridbot client run`: the client itself."""

from __future__ import annotations

import logging
import logging.handlers
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from gridbot_client import joining
from gridbot_client.activity import ActivityLog
from gridbot_client.backoff import FailedRequests
from gridbot_client.client import Client, Revoked
from gridbot_client.commands.failure import failed
from gridbot_client.commands.options import (
    RESUMES,
    data_option,
    folder_of,
    hidden_from_tasks,
    joined_text,
    key_option,
    project_key_option,
    trust_option,
    trusted_text,
)
from gridbot_client.host import description
from gridbot_client.host import gpus as gpu
from gridbot_client.host.gpus import Gpu, GpuClaims
from gridbot_client.host.permission import UnreadablePolicy, read_policy, read_policy_file
from gridbot_client.joining import Pinning, own_fingerprints
from gridbot_client.net.discovery import Endpoint, NoServer, find_server
from gridbot_client.net.transport import (
    NotOurServer,
    RequestRefused,
    ServerUnavailable,
    TransportError,
)
from gridbot_client.options import LEND_AFTER_SECONDS, Options
from gridbot_client.pilot import node_check
from gridbot_client.pilot.behaviour import IDLE_WINDOW_SECONDS, PilotOptions
from gridbot_client.pilot.secrecy import hide
from gridbot_client.quantities import SIZE, TIME, Quantity, seconds
from gridbot_client.storage import Folder, FolderBusy, Identity
from gridbot_client.walls.cells import CGROUP, NONE, PROCESS
from gridbot_client.work.confinement import WallOptions, raised
from gridbot_client.work.nodes import NodeUnfit, PilotNodes, joined
from gridbot_client.work.runner import forbid_core_dumps
from gridbot_policies.policy.owner import OwnerPolicy

_LOG_BYTES = 4 << 20
_NODE = re.compile(r"\w[\w.-]*", re.ASCII)
_ALLOWED_PATH = click.Path(path_type=Path, exists=True)


class NodeFault(click.ClickException):
    """A pilot's node failed its check."""

    exit_code = 3


class ServerFault(click.ClickException):
    """A pilot's server is unreachable or is not a GridBot server."""

    exit_code = 75  # sysexits' EX_TEMPFAIL


@click.command()
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
@click.option(
    "--gpus", type=click.IntRange(0, gpu.MOST), metavar="N",
    help="GPUs to use; 0 for none.  [default: all that CUDA_VISIBLE_DEVICES names, or that are"
    " there and that no other client uses]",
)  # fmt: skip
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
    "--queued", type=TIME, metavar="TIME", default=0.0,
    help="Time for which the pilot waited in a queue.  It leaves after as long without work, and a"
    " twentieth of the time that it had some, within --exit-when-idle.",
)  # fmt: skip
@click.option(
    "--nodes", metavar="NAMES", default="",
    help="Nodes of a pilot that has several, divided by commas, this machine first.  They see the"
    " folder of --data, and have --cpus and --memory together.",
)  # fmt: skip
@click.option(
    "--launch",
    metavar="WORDS",
    default="",
    help="What runs a command on one of --nodes, whose name is joined to it: 'srun --nodelist='.",
)
@click.option(
    "--guest-of", "home", type=click.Path(path_type=Path), hidden=True,
    help="Folder of the client that lends its CPUs, and holds the other end of standard input.",
)  # fmt: skip
@click.option(
    "--lend-after",
    type=TIME,
    default=LEND_AFTER_SECONDS,
    metavar="TIME",
    hidden=True,
    help="Lend to friends CPUs that were idle for this time.",
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
    "--allow-read", "reads", multiple=True, type=_ALLOWED_PATH, metavar="PATH",
    envvar="GRIDBOT_ALLOW_READ", help="Let tasks read this, too.  Repeatable.",
)  # fmt: skip
@click.option(
    "--allow-write", "writes", multiple=True, type=_ALLOWED_PATH, metavar="PATH",
    envvar="GRIDBOT_ALLOW_WRITE", help="Let tasks change this, too.  Repeatable.",
)  # fmt: skip
@click.option(
    "--shared-cache", type=click.Path(path_type=Path), metavar="DIR",
    help="With --pilot: folder on the site's file system that pilots share: what one has fetched,"
    " the others copy from it.",
)  # fmt: skip
@click.option("--quiet", is_flag=True, help="Print errors only; the log has everything.")
def run(
    data: Path | None, server: str | None, key_file: Path | None, cpus: int | None,
    memory: int | None, gpus: int | None, trusts: tuple[str, ...], project_key: str,
    requirements: str | None, policy: Path | None,
    once: bool, exit_when_idle: float | None, dedicated: bool, pilot: str | None,
    walltime: float | None, queued: float, nodes: str, launch: str, home: Path | None,
    lend_after: float, low_cpu_after: float,
    most_walls: int, least_walls: int,
    allow_network: bool, reads: tuple[Path, ...], writes: tuple[Path, ...],
    shared_cache: Path | None, quiet: bool,
) -> None:  # fmt: skip
    """Ask for work and run it until interrupted.  Joins the server first if necessary."""
    folder = folder_of(data)
    try:
        owner_policy = _owner_policy(folder, requirements, policy)
        options = Options(
            room=description.room(cpus, memory), once=once, exit_when_idle=exit_when_idle,
            is_dedicated=dedicated, policy=owner_policy, home=home, lend_after=lend_after,
            shared_cache=_shared_cache(shared_cache, pilot),
            pilot=_pilot(pilot, walltime, queued, low_cpu_after, folder),
            walls=WallOptions(
                most=most_walls, least=least_walls, is_pilot=pilot is not None,
                allow_network=allow_network,
                reads=_allowed(reads, folder.path), writes=_allowed(writes, folder.path),
                # A guest's folder is in that of the other client, of which tasks see nothing.  A
                # shared cache that is away now may come back while tasks run.
                hidden=hidden_from_tasks(home or folder.path, key_file, shared_cache),
            ),
        )  # fmt: skip
        if nodes:
            options = options.on_nodes(_nodes(nodes, launch, options.room.cpus))
        forbid_core_dumps()
        hide()
        signal.signal(signal.SIGTERM, _interrupt)
        if home:
            threading.Thread(target=_leave_with_home, daemon=True).start()
        with folder.lock(), GpuClaims() as claims:
            options = options.with_gpus(_gpus(gpus, claims, is_pilot=pilot is not None))
            folder.save_policy(owner_policy.text if owner_policy else "")
            if sys.stdin.isatty():  # started by hand, so not in step with other clients
                folder.save_backoff(FailedRequests())
            activity = ActivityLog(_writer(folder, quiet), time.monotonic)
            _run(folder, server, key_file, Pinning(trusts, project_key), options, activity)
    except NodeUnfit as error:
        raise NodeFault(str(error)) from None
    except (ServerUnavailable, NotOurServer) as error:
        raise (ServerFault(str(error)) if pilot else failed(error)) from None
    except (
        NoServer, FolderBusy, joining.JoinError, Revoked, TransportError, UnreadablePolicy,
    ) as error:  # fmt: skip
        raise failed(error) from None
    except KeyboardInterrupt:
        if not quiet:
            click.echo(f"stopped; {RESUMES}" if folder.identity() else "stopped")


def _run(
    folder: Folder, server: str | None, key_file: Path | None, pinning: Pinning,
    options: Options, activity: ActivityLog,
) -> None:  # fmt: skip
    with (
        raised(folder.path, options.walls) as (confinement, sandbox),
        joined(options.nodes, options.for_workers(folder, sandbox)) as workers,
    ):
        folder.save_sandbox(sandbox.attributes)
        host, pilot = options.describe(folder, sandbox), options.pilot
        identity = folder.identity()
        if identity is None and options.home:  # its friend was removed as it began
            raise joining.JoinError(f"{folder.path} has joined no server, and a guest joins none")
        if identity is None:
            endpoint = find_server(server, key_file)
            pilot_name = pilot.name if pilot else ""
            own = own_fingerprints(endpoint.url) if pilot is None else ()
            pinning = replace(pinning, owners=(*pinning.owners, *own))
            join = partial(joining.join, folder, endpoint, pinning, host, pilot=pilot_name)
            identity = joining.patiently(join, options.exit_when_idle, activity)
            activity.say(joined_text(identity))
            activity.say(trusted_text(identity))
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
        Client(folder, identity, options, activity, rejoin, confinement, sandbox, workers).run()


def _shared_cache(path: Path | None, pilot: str | None) -> Path | None:
    """The folder that pilots share, which is made; None if it is away.  Raises UsageError."""
    if path and pilot is None:
        raise click.UsageError("--shared-cache needs --pilot")
    if path and not path.is_absolute():
        raise click.UsageError(f"--shared-cache {path}: write the whole path")
    try:
        if path:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        click.echo(f"warning: --shared-cache {path}: {error.strerror}; not used", err=True)
        return None
    return path


def _nodes(names: str, launch: str, cpus: int) -> PilotNodes:
    """Nodes from the options.  Raises UsageError."""
    found = tuple(names.split(","))
    for name in found:
        if not _NODE.fullmatch(name) or found.count(name) > 1:
            raise click.UsageError(
                f"--nodes {names}: {name!r} is no name of a node, or is there twice"
            )
    if cpus < len(found):
        raise click.UsageError(
            f"--nodes {names}: {len(found)} nodes have a core each at least, and all together"
            f" {cpus}; give --cpus {len(found)} or more"
        )
    return PilotNodes(found, launch)


def _allowed(paths: tuple[Path, ...], folder: Path) -> tuple[str, ...]:
    """Paths that tasks may see beside, as they really are; never of the client's folder."""
    own = folder.resolve()
    found = [path.resolve() for path in paths]
    for path in found:
        if path.is_relative_to(own):
            raise click.UsageError(f"{path} is in the client's folder, which no task may see")
    return tuple(map(str, found))


def _gpus(most: int | None, claims: GpuClaims, *, is_pilot: bool) -> tuple[Gpu, ...]:
    """GPUs for the client.  Raises NodeFault or UsageError where there are fewer than asked for."""
    found = gpu.usable(most, os.environ, claims)
    if most is None or len(found) >= most:
        return found
    text = f"--gpus {most}: this machine has {len(found)} to give"
    raise NodeFault(f"node check failed: {text}") if is_pilot else click.UsageError(text)


def _pilot(
    name: str | None, walltime: float | None, queued: float, low_cpu_after: float, folder: Folder
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
    return PilotOptions(
        name=name, ends_at=ends_at, idle_window_seconds=low_cpu_after, queued_seconds=queued
    )


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
        known = folder.identity() or identity
        if known.receipt:
            with suppress(RequestRefused):  # it was not restored: there may be a key
                return joining.join_again(folder, known, host)
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


def _leave_with_home() -> None:
    """End this client when the one that lends its CPUs closes the pipe, or is gone."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _interrupt(*_: object) -> NoReturn:
    # A second signal, such as one to the whole process group, must not interrupt the shutdown.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
