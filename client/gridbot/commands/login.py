"""`gridbot login`: remember a server and a key for this user."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from gridbot.api.connection import Connection
from gridbot.api.errors import BadInput, Refused
from gridbot.api.session import Session
from gridbot.commands.options import FILE, as_json, print_json, say
from gridbot_client.net.discovery import (
    Endpoint,
    is_url,
    login_path,
    signing_key_beside,
    signing_key_path,
)


@click.command()
@click.argument("url")
@click.option("--key", metavar="KEY", help="Your key.  [default: read from standard input]")
@click.option("--key-file", type=FILE, help="File that holds your key.")
@as_json
def login(url: str, key: str | None, key_file: Path | None, as_json: bool) -> None:
    """Save a server's URL and your key in a file that only you can read.

    \b
      gridbot login https://grid.example.org < key.txt
    """  # click's mark for a block that is not wrapped
    if not is_url(url):
        raise BadInput(f"{url!r} is not a URL; write https://…")
    if key is None:
        key = key_file.read_text() if key_file else _typed_key()
    beside = signing_key_beside(key_file) if key_file else None
    endpoint = Endpoint(url.rstrip("/"), key.strip(), signing_key=beside or signing_key_path())
    if not endpoint.key:
        raise BadInput("no key given; an operator of the server creates one: gridbot token create")
    session = Session(Connection(endpoint))
    session.connection.get("/bots", limit=1)  # a wrong key is said now, not at the first use
    own = {"signing_key": str(beside)} if beside else {}
    _write_private(login_path(), json.dumps({"url": endpoint.url, "key": endpoint.key, **own}))
    try:
        signer = session.signer()
    except Refused as error:
        owner = fingerprint = None
        line = f"logged in at {endpoint.url}"
        say(f"you cannot submit from this machine yet: {error}")
    else:
        owner, fingerprint = signer.owner, signer.key.fingerprint
        line = (
            f"logged in at {endpoint.url} as {owner}\n"
            f"your BOTs are signed with the key {fingerprint}"
        )
    document = {"server": endpoint.url, "owner": owner, "fingerprint": fingerprint}
    print_json(document) if as_json else click.echo(line)


def _typed_key() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("your key", hide_input=True, err=True))
    return sys.stdin.readline()


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.part")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    partial.replace(path)
