"""The command `gridbot client`."""

from __future__ import annotations

import click

from gridbot_client.commands.friends import friends
from gridbot_client.commands.join import join, trust
from gridbot_client.commands.keep import install, leave_server, start, stop, uninstall
from gridbot_client.commands.look import doctor, status
from gridbot_client.commands.pauses import pause, resume
from gridbot_client.commands.prefs import prefs
from gridbot_client.commands.run import run


@click.group()
def client() -> None:
    """Run jobs of a GridBot server on this machine."""


for _command in (
    join, friends, trust, run, status, doctor, start, install, uninstall, stop, leave_server, pause,
    prefs, resume,
):  # fmt: skip
    client.add_command(_command)
