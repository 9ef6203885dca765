"""`gridbot app sign`: sign what a BOT runs, where the project's private key is."""

from __future__ import annotations

import base64
import shlex
from pathlib import Path

import click
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from gridbot.commands.options import FILE, say, with_session
from gridbot.errors import BadInput, GridbotError
from gridbot.printing import printable
from gridbot.session import Session
from gridbot_client.protocol import Manifest, manifest_id
from gridbot_client.signatures import CONTEXT


@click.group()
def app() -> None:
    """Sign applications, so that volunteers run them."""


@app.command()
@click.argument("number", metavar="BOT", type=click.IntRange(1))
@click.option("--project-key", type=FILE, required=True, help="The private key; it stays here.")
@with_session
def sign(session: Session, number: int, project_key: Path) -> None:
    """Sign what BOT runs with the project's private key, which never leaves this machine."""
    key = _private_key(project_key)
    path = f"/bots/{number}"
    document = session.connection.get(f"{path}/manifest")
    text = document["text"]
    if manifest_id(text) != document["id"]:
        raise GridbotError(f"bot {number}: the manifest came damaged; nothing is signed")
    manifest = Manifest.from_text(text)
    say(f"owner   {printable(manifest.owner)}")
    say(f"command {printable(shlex.join(manifest.command))}")
    for ref in manifest.inputs:
        say(f"input   {ref.sha256}  {printable(ref.name)}")
    signature = base64.b64encode(key.sign(CONTEXT + text.encode())).decode()
    session.connection.send("PUT", f"{path}/signature", {"signature": signature})
    click.echo(f"bot {number}: signed")


def _private_key(path: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError):
        raise BadInput(f"{path}: holds no private key in PEM form") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadInput(f"{path}: holds a key that is not Ed25519, so it is not a project's key")
    return key
