"""`gridbot client friends`: the servers that this machine works for beside its own."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from gridbot_client.commands.failure import Failed, failed
from gridbot_client.commands.options import as_json, data_option, folder_of, tell
from gridbot_client.friends.roster import folder_of_friend, forget_friend, friends_of, named
from gridbot_client.status import status_of
from gridbot_client.storage import Folder, FolderBusy
from gridbot_client.terminal import printable
from gridbot_client.upkeep import background
from gridbot_client.upkeep.leaving import leave


@click.command()
@click.option(
    "--remove", metavar="URL", help="Work for this server no more, and remove what it had here."
)
@data_option
@as_json
def friends(remove: str | None, data: Path | None, as_json: bool) -> None:
    """List friends: servers that get what home leaves idle.

    Home is the server that this client joined first.  To add a friend: gridbot client join URL
    --key KEY --friend
    """
    folder = folder_of(data)
    if remove is not None:
        _remove(folder, remove, as_json=as_json)
        return
    found = friends_told(folder)
    if as_json:
        click.echo(json.dumps({"friends": found}))
    else:
        click.echo("\n".join(friend_lines(folder)) or "there are none")


def _remove(folder: Folder, url: str, *, as_json: bool) -> None:
    known = forget_friend(folder, url)
    friend = known or named(url.rstrip("/"))
    place = folder_of_friend(folder, friend)
    if known is None and place.identity() is None:  # else an earlier removal was cut short
        raise Failed(f"{url} is no friend of this client: gridbot client friends lists them")
    try:
        told = leave(place)
    except (background.NotStopped, FolderBusy) as error:
        raise failed(error) from None
    tell(f"left: {told}", {"left": friend.url, "told": told}, as_json=as_json)


def friends_told(folder: Folder) -> list[dict[str, Any]]:
    """The friends in their order, with what their guests do, for --json."""
    found = []
    for friend in friends_of(folder):
        status = status_of(folder_of_friend(folder, friend))
        is_guest = status.process is not None
        state = status.state if is_guest else "no guest"
        found.append({**asdict(friend), "state": state, "running": status.running})
    return found


def friend_lines(folder: Folder) -> list[str]:
    """The same for people."""
    return [
        printable(f"friend {item['url']}, at most {item['share']} % of the CPUs: {_state(item)}")
        for item in friends_told(folder)
    ]


def _state(item: dict[str, Any]) -> str:
    return f"running {item['running']}" if item["state"] == "running" else str(item["state"])
