"""`gridbot data …`: files, where they are, and where they come from."""

from __future__ import annotations

import click

from gridbot.commands.origins import ORIGIN_COMMANDS
from gridbot.commands.placements import PLACEMENT_COMMANDS
from gridbot.commands.sources import SOURCE_COMMANDS


@click.group()
def data() -> None:
    """Copy files between places, and tell where files come from."""


for command in (*PLACEMENT_COMMANDS, *ORIGIN_COMMANDS, *SOURCE_COMMANDS):
    data.add_command(command)
