"""`gridbot key`: the key pairs that sign a person's BOTs."""

from __future__ import annotations

import base64
from pathlib import Path

import click

from gridbot.api import signing_key
from gridbot.api.documents import Signing
from gridbot.api.errors import BadInput, GridbotError
from gridbot.api.session import Session
from gridbot.commands.options import FILE, as_json, print_json, with_session
from gridbot.printing import table
from gridbot_client.net.discovery import find_server, remember_keys, signing_key_path
from gridbot_client.protocol.fields import is_sha256
from gridbot_client.protocol.messages import introduction_json
from gridbot_client.protocol.signatures import Introduction, fingerprint, revocation
from gridbot_client.terminal import printable


@click.group()
def key() -> None:
    """Manage the key pairs that sign your BOTs.

    Clients run a BOT only if a key that they trust signed it.  Your private key is made on this
    machine by `gridbot login` or `gridbot server start`, and never leaves it unless you export it.
    """


@key.command(name="list")
@as_json
@with_session
def list_keys(session: Session, as_json: bool) -> None:
    """List your signing keys; * marks the one here."""
    here = session.signer().key.public.hex()
    document: Signing = session.connection.get("/signing")
    if as_json:
        print_json({**document, "here": fingerprint(bytes.fromhex(here))})
        return
    by = {known["key"]: known["fingerprint"][:16] for known in document["keys"]}
    rows = [
        [
            "*" if known["key"] == here else "",
            known["fingerprint"],
            printable(known["label"]),
            by.get(known["introduced_by"] or "", "") or "nobody",
            "revoked" if known["is_revoked"] else "",
        ]
        for known in document["keys"]
    ]
    click.echo(table(["here", "fingerprint", "label", "introduced by", ""], rows))
    click.echo("to run your BOTs on another machine: gridbot client join URL --trust FINGERPRINT")


@key.command()
@click.argument("public", metavar="PUBLIC-KEY")
@click.option("--label", default="introduced", help="Name for the list of keys.")
@with_session
def add(session: Session, public: str, label: str) -> None:
    """Let another key sign your BOTs, too.

    This machine's key introduces PUBLIC-KEY.

    On the other machine, `gridbot login` shows that key.
    """
    if not is_sha256(public):
        raise BadInput(f"{public!r} is not a public key: 64 lower-case hex digits")
    newer = bytes.fromhex(public)
    signer = session.signer()
    _introduce(session, signer.key.introduce(newer), label)
    click.echo(f"key {fingerprint(newer)} signs for {printable(signer.owner)}, too")


@key.command()
@click.argument("file", type=click.Path(path_type=Path))
@with_session
def export(session: Session, file: Path) -> None:
    """Copy this machine's private key to FILE.

    There: gridbot key import FILE, or name the file in GRIDBOT_SIGNING_KEY.
    """
    if file.exists():
        raise BadInput(f"{file} exists and is never overwritten")
    signing_key.save(session.signing_key(), file)
    remember_keys(file)
    click.echo(f"{file} signs BOTs in your name: keep it secret")


@key.command(name="import")
@click.argument("file", type=FILE)
@click.option("--server", metavar="URL", help="Server for which it signs.  [default: the usual]")
def import_key(file: Path, server: str | None) -> None:
    """Use the private key in FILE on this machine."""
    found = signing_key.load(file)
    path = find_server(server, None).signing_key or signing_key_path()
    if path.exists():
        if signing_key.load(path).public == found.public:
            click.echo(f"{path} holds this key already")
            return
        raise BadInput(f"{path} holds another key; move it away first")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    signing_key.save(found, path)
    click.echo(f"BOTs are signed with the key {found.fingerprint}")


@key.command()
@click.argument("fingerprints", metavar="FINGERPRINT...", nargs=-1, required=True)
@click.option(
    "--by", "by_file", type=FILE,
    help="Private key that revokes; the project's may revoke anything.  [default: yours]",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Revoke without confirmation.")
@with_session
def revoke(
    session: Session, fingerprints: tuple[str, ...], by_file: Path | None, yes: bool
) -> None:
    """Revoke keys, or signatures on BOTs, for ever.

    A FINGERPRINT is that of a key of yours, or the id of a BOT's manifest.

    Clients stop to trust them as soon as they hear of it, within an hour.
    """
    signer = signing_key.load(by_file) if by_file else session.signer().key
    for subject in fingerprints:
        if not is_sha256(subject):
            raise BadInput(f"{subject!r} is no fingerprint: 64 lower-case hex digits")
    if not yes and not click.confirm(f"revoke {' '.join(fingerprints)}?", err=True):
        raise GridbotError("not revoked: not confirmed")
    for subject in fingerprints:
        signature = signer.sign(revocation(subject))
        body = {
            "subject": subject,
            "signer": signer.public.hex(),
            "signature": base64.b64encode(signature).decode(),
        }
        bots = session.connection.send("POST", "/signing/revocations", body)["bots"]
        click.echo(f"revoked {subject}")
        if bots:
            numbers = ", ".join(map(str, bots))
            click.echo(f"BOTs that wait for another signature: {numbers}; submit them again")


def _introduce(session: Session, word: Introduction, label: str) -> None:
    body = {
        "key": word.new.hex(),
        "label": label,
        "introduced_by": word.old.hex(),
        "signature": introduction_json(word)["signature"],
    }
    session.connection.send("POST", "/signing/keys", body)
