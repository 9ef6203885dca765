"""`gridbot status` and `gridbot top`: server, client and BOTs on one page."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from gridbot.api.connection import Connection
from gridbot.api.errors import BadInput, GridbotError
from gridbot.api.session import Session
from gridbot.api.state import BotState
from gridbot.commands.options import as_json, print_json, server_options
from gridbot.show.columns import hosts_table
from gridbot.show.overview import Overview
from gridbot.show.throughput import MINUTES, throughput_lines
from gridbot_client.net.discovery import (
    Endpoint,
    NoServer,
    WrongEndpoint,
    data_directory,
    find_server,
)
from gridbot_client.quantities import TIME
from gridbot_client.standing import UNTOLD, prospects_of
from gridbot_client.status import status_of
from gridbot_client.storage import Folder

_NO_SERVER = 3
_MOST_HISTORIES = 5  # BOTs whose throughput is shown
_SHORTEST_SECONDS = 0.5  # between two looks of `top`


@click.command()
@server_options
@as_json
def status(server: str | None, key_file: Path | None, as_json: bool) -> None:
    """Show the server, this machine's client and your BOTs on one page.

    Exits with 3 if no server is known, or it does not answer.
    """
    found, _, _ = _look(server, key_file)
    print_json(found.json()) if as_json else click.echo(found.page())
    sys.exit(_NO_SERVER if found.health is None else 0)


@click.command()
@server_options
@click.option(
    "--every", type=TIME, default="2s", show_default=True, metavar="TIME",
    help="Time between two looks.",
)  # fmt: skip
def top(server: str | None, key_file: Path | None, every: float) -> None:
    """Show that page of `gridbot status`, and the hosts, again and again.

    With it, how many jobs a minute running BOTs do.

    Needs a terminal; ends with Ctrl-C.
    """
    console = Console()
    if not console.is_terminal:
        raise click.UsageError("top needs a terminal; for scripts: gridbot status --json")
    with (
        suppress(KeyboardInterrupt),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            page = _with_hosts(*_look(server, key_file, with_history=True))
            live.update(Text(page, no_wrap=True, overflow="ellipsis"), refresh=True)
            time.sleep(max(_SHORTEST_SECONDS, every))


def _with_hosts(
    overview: Overview,
    hosts: Sequence[Mapping[str, Any]],
    histories: Sequence[Mapping[str, Any]],
) -> str:
    parts = [overview.page(), "\n".join(throughput_lines(histories))]
    if hosts:
        parts.append(hosts_table(hosts[: shutil.get_terminal_size().lines]))
    return "\n\n".join(part for part in parts if part)


def _histories(connection: Connection, bots: Sequence[BotState]) -> list[dict[str, Any]]:
    """The last minutes of the BOTs that run, the latest first."""
    begin = int(time.time()) - 60 * (MINUTES + 1)
    running = [bot.id for bot in bots if bot.state == "running"][:_MOST_HISTORIES]
    return [connection.get(f"/bots/{bot}/history?begin={begin}&step=60") for bot in running]


def _look(
    server: str | None, key_file: Path | None, with_history: bool = False
) -> tuple[Overview, Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]:
    """The page, the hosts that this person may see, and the last minutes of BOTs that run."""
    folder = Folder(data_directory("client"))
    client = status_of(folder)
    endpoint, fault = _endpoint(server, key_file, client.server)
    health = bots = None
    hosts: Sequence[Mapping[str, Any]] = ()
    histories: Sequence[Mapping[str, Any]] = ()
    if endpoint is not None:
        with closing(Connection(endpoint)) as connection:
            try:
                health = connection.health()
                if endpoint.key:
                    bots = Session(connection).bots(limit=200)
                    hosts = connection.get("/hosts")["hosts"]
                    histories = _histories(connection, bots) if with_history else ()
            except GridbotError as error:
                fault = str(error)
    prospects = prospects_of(folder) if health is not None and client.is_idle else None
    lines = client.lines(prospects.idle() if prospects else UNTOLD)
    found = Overview(
        server=endpoint.url if endpoint else None, health=health, fault=fault, client=lines,
        client_document=client.json(), bots=bots,
    )  # fmt: skip
    return found, hosts, histories


def _endpoint(
    server: str | None, key_file: Path | None, of_client: str | None
) -> tuple[Endpoint | None, str]:
    """The server that is asked, or why there is none.

    Without a key, as for a volunteer, the one that is named, or else that of the client.
    """
    try:
        return find_server(server, key_file), ""
    except WrongEndpoint as error:
        raise BadInput(str(error)) from None
    except NoServer as error:
        if url := server or os.environ.get("GRIDBOT_SERVER") or of_client:
            return Endpoint(url.rstrip("/"), ""), ""
        return None, str(error)
