"""`gridbot data …`: files and where they are."""

from __future__ import annotations

import click

from gridbot.commands.placements import PLACEMENT_COMMANDS


@click.group()
def data() -> None:
    """Copy files between places, and see how the copies stand."""


for command in PLACEMENT_COMMANDS:
    data.add_command(command)
