"""The commands of `gridbot overlay`: add, list, remove, edit, check, status, drain, resume, run."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict
from typing import Any

import click

from gridbot.api.errors import BadInput, GridbotError
from gridbot.commands.options import as_json, print_json, say
from gridbot.printing import table
from gridbot_client.protocol.fields import is_sha256
from gridbot_client.terminal import printable
from gridbot_overlay import checks, rounds, status
from gridbot_overlay.act.constructor import views_of
from gridbot_overlay.act.store import is_held, only_one
from gridbot_overlay.cli_add import add
from gridbot_overlay.cli_options import TIME, with_folder
from gridbot_overlay.decide.construct import Plan
from gridbot_overlay.decide.model import Grid
from gridbot_overlay.folder import OverlayFolder

_FIRST_GRID = "gridbot overlay add KIND NAME"


@click.group()
def overlay() -> None:
    """Submit pilots to clusters, as many as the BOTs need.

    A pilot is a cluster job that runs a GridBot client.  A first overlay:

    \b
    gridbot overlay add local here --max-running 4
    gridbot overlay check
    gridbot overlay run
    """


overlay.add_command(add)


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
    "--wait", metavar="TIME", type=TIME, default="10m", show_default=True,
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
    type=TIME,
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
