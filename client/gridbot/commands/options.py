"""Options that several verbs share, and how they print."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gridbot.api.session import connect

R = TypeVar("R")

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document only.")


def server_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give a verb --server and --key-file, for `connect`."""
    key_file = click.option("--key-file", type=FILE, help="A file with your key [GRIDBOT_KEY].")
    server = click.option("--server", metavar="URL", help="The server [GRIDBOT_SERVER].")
    return server(key_file(command))


def with_session(command: Callable[..., R]) -> Callable[..., R]:
    """Give a verb --server and --key-file, and the session that they mean."""

    @server_options
    @functools.wraps(command)
    def call(server: str | None, key_file: Path | None, **options: Any) -> R:
        with connect(server, key_file) as session:
            return command(session, **options)

    return call


def print_json(document: Any) -> None:
    """The one document of a verb that was asked for JSON."""
    click.echo(json.dumps(document, indent=2))


def say(line: str) -> None:
    """Tell the person, not the pipe."""
    click.echo(line, err=True)
