"""The commands of `gridbot overlay`: add, list, remove, edit, check, status, drain, resume, run."""

from __future__ import annotations

import functools
import logging
import time
import tomllib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from gridbot.api.errors import BadInput, GridbotError
from gridbot.commands.options import as_json, print_json, say
from gridbot.printing import table
from gridbot_client.protocol.fields import is_sha256
from gridbot_client.quantities import SIZE, Quantity, seconds
from gridbot_client.terminal import printable
from gridbot_overlay import checks, rounds, status
from gridbot_overlay.act.constructor import views_of
from gridbot_overlay.act.store import is_held, only_one
from gridbot_overlay.decide.construct import Plan
from gridbot_overlay.decide.model import Grid
from gridbot_overlay.decide.money import PERIODS
from gridbot_overlay.folder import OverlayFolder
from gridbot_overlay.submitters import KINDS

R = TypeVar("R")

_FIRST_GRID = "gridbot overlay add KIND NAME"
_SHAPE_OPTIONS = ("nodes", "cpus", "memory_mb", "gpus", "walltime_seconds", "idle_seconds")
_LIMIT_OPTIONS = (
    "max_queued", "max_running", "submits_per_minute", "budget_pilot_hours", "budget",
    "budget_period",
)  # fmt: skip
_KINDS = ", ".join(sorted(KINDS))


# overlay.toml holds whole seconds.
_TIME = Quantity("time", lambda text: round(seconds(text)), least=1)


def with_folder(command: Callable[..., R]) -> Callable[..., R]:
    """Add --data to a command, and pass it the overlay's folder."""

    @click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Folder of the overlay, with overlay.toml."
        "  [default: overlay in GRIDBOT_DATA; /var/lib/gridbot if root; or ~/.local/share/gridbot]",
    )
    @functools.wraps(command)
    def call(data: Path | None, **options: Any) -> R:
        return command(OverlayFolder.at(data), **options)

    return call


@click.group()
def overlay() -> None:
    """Submit pilots to clusters, as many as the BOTs need.

    A pilot is a cluster job that runs a GridBot client.  A first overlay:

    \b
    gridbot overlay add local here --max-running 4
    gridbot overlay check
    gridbot overlay run
    """


@overlay.command(
    help=f"Add the grid NAME of KIND to overlay.toml.  Submits nothing.\n\nKIND is one of {_KINDS}."
)
@click.argument("kind", metavar="KIND", type=click.Choice(sorted(KINDS)))
@click.argument("name")
@click.option("--cpus", type=int, metavar="N", help="CPU cores per pilot.  [default: 1]")
@click.option(
    "--memory", "memory_mb", metavar="SIZE", type=SIZE, help="Memory per pilot.  [default: 2GB]"
)
@click.option(
    "--nodes", type=int, metavar="N",
    help="Nodes per pilot, each with --cpus and --memory; Slurm only.  [default: 1]",
)  # fmt: skip
@click.option("--gpus", type=int, metavar="N", help="GPUs per pilot.  [default: 0]")
@click.option(
    "--walltime",
    "walltime_seconds",
    metavar="TIME",
    type=_TIME,
    help="Walltime per pilot, such as 30m or 4h.  [default: 1h]",
)
@click.option(
    "--idle",
    "idle_seconds",
    metavar="TIME",
    type=_TIME,
    help="A pilot without work exits after this time at the latest.  [default: 60s]",
)
@click.option("--max-queued", type=int, metavar="N", help="Queued pilots.  [default: 10]")
@click.option(
    "--max-running", type=int, metavar="N", help="Running and queued pilots.  [default: 100]"
)
@click.option(
    "--submits-per-minute", type=int, metavar="N", help="Submissions per minute.  [default: 30]"
)
@click.option(
    "--budget",
    "budget_pilot_hours",
    metavar="HOURS",
    type=float,
    help="Pilot-hours in all.  [default: no limit]",
)
@click.option(
    "--price", metavar="MONEY", type=float,
    help="What a pilot costs for an hour, in any currency.  [default: nothing]",
)  # fmt: skip
@click.option(
    "--price-per-core-hour", metavar="MONEY", type=float, help="The same of each of its cores."
)
@click.option(
    "--money-budget", "budget", metavar="MONEY", type=float,
    help="Money that pilots may cost.  [default: no limit]",
)  # fmt: skip
@click.option(
    "--budget-period", type=click.Choice(list(PERIODS)),
    help="Time for which --money-budget is.  [default: ever]",
)  # fmt: skip
@click.option(
    "--dedicated", "is_dedicated", is_flag=True, help="Pilots of this grid are never preempted."
)
@click.option(
    "--python", metavar="COMMAND", help="Python on the nodes, 3.11 or newer.  [default: python3]"
)
@click.option(
    "--scratch",
    metavar="DIR",
    help="Scratch directory on the nodes, expanded there.  [default: ${TMPDIR:-/tmp}]",
)
@click.option(
    "--shared-cache", metavar="DIR",
    help="Folder that all nodes see: what one pilot has fetched, the others copy from it."
    "  [default: none]",
)  # fmt: skip
@click.option(
    "--setup",
    multiple=True,
    metavar="LINE",
    help="Shell line to run first on the node, such as: module load python.  Repeatable.",
)
@click.option(
    "--owner",
    "owners",
    multiple=True,
    metavar="NAME",
    help="Also run the BOTs of this user; * for all users.  Repeatable."
    "  [default: operators' BOTs only]",
)
@click.option(
    "--directive",
    "directives",
    multiple=True,
    metavar="OPTION",
    help="Option of the batch system, passed unchanged, such as --partition=long.  Repeatable.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of this kind of grid; VALUE is TOML or a string.  Repeatable.",
)
@with_folder
def add(
    folder: OverlayFolder, kind: str, name: str, options: tuple[str, ...], **given: Any
) -> None:
    """Add the grid NAME of KIND to overlay.toml.  Submits nothing."""
    own = dict(map(_option, options))
    folder.add(name, _grid_table(kind, dict(filter(_is_given, given.items())), own))
    click.echo(f"added {name} to {folder.settings_path}; next: gridbot overlay check {name}")
    try:
        pinned = folder.pins(folder.settings())
    except GridbotError as error:
        say(f"the keys that pilots trust are pinned at the first round: {error}")
    else:
        click.echo(f"pilots run what project key {pinned.project_key} signed, and BOTs signed by:")
        click.echo("\n".join(pinned.owners))


@overlay.command()
@click.argument("fingerprint")
@with_folder
def trust(folder: OverlayFolder, fingerprint: str) -> None:
    """Let pilots also run BOTs that the key with this FINGERPRINT signed.

    Its owner's `gridbot key list` shows it.  A running constructor follows when it starts again.
    """
    if not is_sha256(fingerprint):
        raise BadInput(f"{fingerprint!r} is no fingerprint: 64 lower-case hex digits")
    click.echo("pilots run BOTs signed by: " + ", ".join(folder.trust(fingerprint).owners))


@overlay.command(name="list")
@as_json
@with_folder
def list_grids(folder: OverlayFolder, as_json: bool) -> None:
    """List the configured grids."""
    rows = [_grid_row(grid) for grid in folder.settings().grids.values()]
    if as_json:
        print_json({"grids": rows})
    else:
        click.echo(
            table(list(_grid_row(Grid(name="", kind=""))), [[*row.values()] for row in rows])
        )


@overlay.command()
@click.argument("name")
@with_folder
def remove(folder: OverlayFolder, name: str) -> None:
    """Remove the grid NAME from overlay.toml, once it is drained."""
    folder.remove(name)
    click.echo(f"{name} is removed from {folder.settings_path}")


@overlay.command()
@with_folder
def edit(folder: OverlayFolder) -> None:
    """Edit overlay.toml with $EDITOR; only a right one is kept."""
    old = folder.text()
    new = click.edit(old, extension=".toml")
    if new is None or new == old:
        click.echo("nothing was changed")
        return
    folder.write(new)
    click.echo(f"{folder.settings_path} is changed; a running constructor reads it at once")


@overlay.command()
@click.argument("name", required=False)
@click.option(
    "--probe", is_flag=True,
    help="Also send one short pilot to each grid.  It examines its node and leaves.",
)  # fmt: skip
@click.option(
    "--wait", metavar="TIME", type=_TIME, default="10m", show_default=True,
    help="Cancel a probe that has not ended after this time.",
)  # fmt: skip
@as_json
@with_folder
def check(folder: OverlayFolder, name: str | None, probe: bool, wait: int, as_json: bool) -> None:
    """Check the configuration against the server and the grids.

    Submits nothing but probes.
    """
    settings = folder.settings()
    chosen = [settings.grid(name)] if name else list(settings.grids.values())
    found = []
    for where, item in checks.findings(folder, settings, chosen, wait if probe else None):
        found.append((where, item))
        if not as_json:
            mark = click.style("ok ", fg="green") if item.is_good else click.style("BAD", fg="red")
            click.echo(f"{mark}  {where}: {item.what}: {printable(item.text)}")
    if as_json:
        print_json({"findings": [{"where": where, **asdict(item)} for where, item in found]})
    if bad := sum(not item.is_good for _, item in found):
        raise GridbotError(f"{bad} of {len(found)} checks failed")
    if not as_json:
        following = "gridbot overlay run" if settings.grids else _FIRST_GRID
        click.echo(f"all {len(found)} checks passed; next: {following}")


@overlay.command(name="status")
@as_json
@with_folder
def show_status(folder: OverlayFolder, as_json: bool) -> None:
    """Show pilots by state, and why no more are submitted."""
    store, now = folder.store(), time.time()
    views = views_of(store, folder.settings().grids.values(), now)
    found = status.document(store, views, now, is_running=is_held(folder.path))
    if as_json:
        print_json(found)
    else:
        click.echo("\n".join(status.lines(found)))


@overlay.command()
@click.argument("pilot", required=False)
@click.option("--grid", default="", metavar="NAME", help="List those of this grid only.")
@as_json
@with_folder
def logs(folder: OverlayFolder, pilot: str | None, grid: str, as_json: bool) -> None:
    """Show how the pilot PILOT ended and the end of its stderr.

    Without PILOT, list the pilots that ended last.
    """
    server = folder.server(folder.settings())
    found = server.log(pilot) if pilot else {"logs": server.logs(grid)}
    if as_json:
        print_json(found)
    else:
        click.echo("\n".join(status.log_lines(found) if pilot else status.ended_lines(found)))


@overlay.command()
@click.argument("name")
@click.option(
    "--let-finish", is_flag=True, help="Let running pilots work until they are idle or time out."
)
@with_folder
def drain(folder: OverlayFolder, name: str, let_finish: bool) -> None:
    """Drain the grid NAME: submit no more pilots and end those there.

    Queued pilots are cancelled.  The server sends the replicas of running ones elsewhere.  A
    running constructor does this in its next round.
    """
    folder.settings().grid(name)
    folder.store().drain(name, "finish" if let_finish else "now")
    click.echo(f"draining {name} from the next round on; to undo: gridbot overlay resume {name}")


@overlay.command()
@click.argument("name")
@with_folder
def resume(folder: OverlayFolder, name: str) -> None:
    """End a drain or a pause of the grid NAME.

    It also resets the grid's failure counts.
    """
    folder.settings().grid(name)
    folder.store().resume(name, time.time())
    click.echo(f"{name} is in use again")


@overlay.command()
@click.option("--once", is_flag=True, help="Do one round and exit.")
@click.option(
    "--dry-run", is_flag=True, help="Do one round without effects: print actions and reasons."
)
@click.option(
    "--interval",
    metavar="TIME",
    type=_TIME,
    default="15s",
    show_default=True,
    help="Time between two rounds.",
)
@with_folder
def run(folder: OverlayFolder, once: bool, dry_run: bool, interval: int) -> None:
    """Submit and cancel pilots by demand, until interrupted."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    if dry_run:
        _tell_plan(rounds.dry_run(folder, click.echo))
        return
    if not folder.settings().grids:
        say(f"no grid is configured; add one: {_FIRST_GRID}")
    with only_one(folder.path):
        if once:
            rounds.run_once(folder, folder.store(), _told)
        else:
            rounds.run_on(folder, folder.store(), _told, interval)


def _tell_plan(planned: Plan) -> None:
    for name, why in planned.notes.items():
        click.echo(printable(f"{name}: no more pilots: {why}"))
    for bot, why in planned.unserved.items():
        click.echo(printable(f"BOT {bot}: no grid can serve it: {why}"))


def _told(line: str) -> None:
    say(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {printable(line)}")


def _is_given(item: tuple[str, Any]) -> bool:
    """True if an option was given; 0 counts as given."""
    _, value = item
    return value is not None and value is not False and value != ()


def _grid_table(kind: str, given: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Sort options into the tables of overlay.toml."""
    parts: dict[str, dict[str, Any]] = {"shape": {}, "limits": {}}
    grid: dict[str, Any] = {"kind": kind}
    for key, value in given.items():
        if key in _SHAPE_OPTIONS:
            parts["shape"][key] = value
        elif key in _LIMIT_OPTIONS:
            parts["limits"][key] = value
        else:
            grid[key] = list(value) if isinstance(value, tuple) else value
    return {**grid, **parts, "options": own}


def _option(text: str) -> tuple[str, Any]:
    key, is_given, value = text.partition("=")
    if not is_given:
        raise BadInput(f"--option {text}: expected KEY=VALUE")
    try:
        read = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return key, value
    return key, read["value"] if len(read) == 1 else value


def _grid_row(grid: Grid) -> dict[str, Any]:
    return {
        "name": grid.name,
        "kind": grid.kind,
        "nodes": grid.shape.nodes,
        "cpus": grid.shape.cpus,
        "memory_mb": grid.shape.memory_mb,
        "gpus": grid.shape.gpus,
        "walltime": grid.shape.walltime_seconds,
        "max_queued": grid.limits.max_queued,
        "max_running": grid.limits.max_running,
        "budget": grid.limits.budget_pilot_hours,
        "price": grid.price,
        "money_budget": grid.limits.budget,
        "dedicated": grid.is_dedicated,
    }
