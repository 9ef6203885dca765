"""What the kinds with a command line share: a grid's options, its programs, its pilots' logs."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gridbot_overlay.decide.model import Grid
from gridbot_overlay.submitters import rendering
from gridbot_overlay.submitters.commands import Commands
from gridbot_overlay.submitters.logs import Logs

# What every such grid may set, with its default.
OPTIONS: Mapping[str, Any] = {
    "through": [],  # a command that takes a shell line: ["ssh", "login.example"]
    "environment": {},  # for the system's programs: {SLURM_CONF = "/etc/slurm2/slurm.conf"}
    "logs": "",  # a folder that the nodes share; default: in the constructor's own
}


@dataclass(frozen=True, slots=True)
class Site:
    """The way to one grid's batch system."""

    options: Mapping[str, Any]
    commands: Commands
    logs: Logs


class OnSite:
    """What kinds with a command line do alike."""

    def __init__(self, grid: Grid, site: Site) -> None:
        self._grid = grid
        self._site = site

    def tail(self, native_id: str, tag: str) -> str:
        """Return the end of the pilot's stderr."""
        return self._site.logs.tail(tag, native_id)

    @functools.cached_property
    def _user(self) -> str:
        """Who we are there."""
        return self._site.commands.run("id", "-un").strip()


def site(
    grid: Grid, folder: Path, options: Mapping[str, Any], away: re.Pattern[str], *,
    has_nodes: bool = False,
) -> Site:  # fmt: skip
    """Read a grid's options; `options` are the kind's own with their defaults."""
    chosen = rendering.options(grid, {**OPTIONS, **options}, has_nodes=has_nodes)
    through, environment = tuple(chosen["through"]), chosen["environment"]
    commands = Commands(through=through, environment=environment, away=away)
    return Site(chosen, commands, Logs(commands, chosen["logs"] or str(folder / "logs")))
