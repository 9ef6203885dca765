"""`gridbot overlay add`: its options become a grid's table in overlay.toml."""

from __future__ import annotations

import tomllib
from typing import Any

import click

from gridbot.api.errors import BadInput, GridbotError
from gridbot.commands.options import say
from gridbot_client.quantities import SIZE
from gridbot_overlay.cli_options import TIME, with_folder
from gridbot_overlay.decide.money import PERIODS
from gridbot_overlay.folder import OverlayFolder
from gridbot_overlay.submitters import KINDS

_SHAPE_OPTIONS = ("nodes", "cpus", "memory_mb", "gpus", "walltime_seconds", "idle_seconds")
_LIMIT_OPTIONS = (
    "max_queued", "max_running", "submits_per_minute", "budget_pilot_hours", "budget",
    "budget_period",
)  # fmt: skip
_KINDS = ", ".join(sorted(KINDS))


@click.command(
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
    help="Nodes per pilot, each with --cpus and --memory; slurm, pbs.  [default: 1]",
)  # fmt: skip
@click.option("--gpus", type=int, metavar="N", help="GPUs per pilot.  [default: 0]")
@click.option(
    "--walltime",
    "walltime_seconds",
    metavar="TIME",
    type=TIME,
    help="Walltime per pilot, such as 30m or 4h.  [default: 1h]",
)
@click.option(
    "--idle",
    "idle_seconds",
    metavar="TIME",
    type=TIME,
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
