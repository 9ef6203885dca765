"""`gridbot storage`: buckets of one's own, to which outputs of BOTs go."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gridbot.api.errors import BadInput
from gridbot.api.session import Session
from gridbot.commands.options import FILE, as_json, print_json, with_session
from gridbot.printing import counted
from gridbot_client.terminal import printable

_PATH = "/storages"
_ACCESS, _SECRET = "aws_access_key_id", "aws_secret_access_key"


@click.group()
def storage() -> None:
    """Name buckets of yours to which hosts send outputs, past the server.

    To use one: gridbot submit --outputs-to NAME
    """


@storage.command("add")
@click.argument("name")
@click.argument("place", metavar="s3://BUCKET/PREFIX?endpoint=https://HOST")
@click.option(
    "--credentials",
    type=FILE,
    help="File with the keys, in the format of AWS's tools; AWS_PROFILE names its section."
    "  [default: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or you are asked]",
)
@as_json
@with_session
def add_storage(
    session: Session, name: str, place: str, credentials: Path | None, as_json: bool
) -> None:
    """Add a storage, or give the same one other keys.

    The server writes an object there and deletes it, and keeps the keys encrypted.  Give it keys
    that may read, write and delete below PREFIX and list the bucket, and nothing else.
    """
    access_key, secret_key = _keys(credentials, os.environ)
    body = {"name": name, "place": place, "access_key": access_key, "secret_key": secret_key}
    made = session.connection.send("POST", _PATH, body)
    if as_json:
        print_json(made)
    else:
        click.echo(f"outputs of gridbot submit --outputs-to {name} go to {_folder(made)}")


@storage.command("list")
@as_json
@with_session
def list_storages(session: Session, as_json: bool) -> None:
    """List your storages, and what is on its way to them."""
    found = session.connection.get(_PATH)
    if as_json:
        print_json(found)
        return
    for item in found["storages"]:
        waiting = f", {counted(item['unpublished'], 'job')} to publish"
        fault = f": {printable(item['error'])}" if item["error"] else ""
        click.echo(
            f"{item['name']}  {_folder(item)}{waiting if item['unpublished'] else ''}{fault}"
        )
    if not found["storages"]:
        click.echo(
            "none; to add one: gridbot storage add NAME s3://BUCKET/PREFIX?endpoint=https://…"
        )


@storage.command("remove")
@click.argument("name")
@as_json
@with_session
def remove_storage(session: Session, name: str, as_json: bool) -> None:
    """Let the server forget a storage and its keys; what is there stays."""
    gone = session.connection.send("DELETE", f"{_PATH}/{name}")
    if as_json:
        print_json(gone)
        return
    click.echo(f"{name} is removed")
    if gone["objects_left"]:
        place = printable(gone["place"])
        click.echo(f"up to {counted(gone['objects_left'], 'object')} below {place}/incoming/ stay")


def _folder(item: Mapping[str, Any]) -> str:
    """Where its objects are."""
    place, _, options = item["place"].partition("?")
    return printable(f"{place.rstrip('/')}/{item['tag']} ({options})")


def _keys(file: Path | None, environment: Mapping[str, str]) -> tuple[str, str]:
    """The access key and the secret key.  Raises BadInput."""
    if file is not None:
        return _keys_in(file, environment.get("AWS_PROFILE") or "default")
    access, secret = (environment.get(name.upper(), "") for name in (_ACCESS, _SECRET))
    if access and secret:
        return access, secret
    return click.prompt("Access key"), click.prompt("Secret key", hide_input=True)


def _keys_in(file: Path, section: str) -> tuple[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(file.read_text())
        return parser[section][_ACCESS], parser[section][_SECRET]
    except (configparser.Error, KeyError, UnicodeDecodeError):
        # The message of a parser holds the line, which may be a secret.
        raise BadInput(
            f"{file}: expected a section [{section}] with {_ACCESS} = … and {_SECRET} = …"
        ) from None
