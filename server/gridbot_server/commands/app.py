"""The commands of `gridbot app`: sign BOTs on a machine other than the server.

They use the server through its public API.  The private keys stay on the machine where they run;
the server gets public keys and signatures.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import click
import requests

from gridbot.api.errors import GridbotError, ServerAway
from gridbot.api.session import Session, connect
from gridbot.commands.options import FILE, say, server_options, with_session
from gridbot_client.protocol.messages import FileRef, Manifest, ProtocolError, manifest_id
from gridbot_client.terminal import printable
from gridbot_server.boinc.application import key_holder
from gridbot_server.signing import keys
from gridbot_server.signing.bundle import BundleError, KeyKind, SigningBundle, SigningKeys
from gridbot_server.signing.keys import KeyFileError
from gridbot_server.storage.disk import write_atomically

R = TypeVar("R")

_CHUNK_BYTES = 1 << 20
FOLDER = click.Path(file_okay=False, path_type=Path)
BUNDLE = click.Path(exists=True, file_okay=False, path_type=Path)


def _make_project_key(path: Path) -> str:
    keys.create(path)
    return keys.public_text(keys.load_private(path))


# Values that jobs may put into a signed command, by the placeholder's type.
_FILLINGS = {"int": "a whole number", "real": "a number", "text": "any text"}
# Where the server takes the next key of a kind, and whose clients learn of it.
_ANNOUNCED: Mapping[KeyKind, tuple[str, str]] = {
    "project": ("/signing/project-key", "clients"),
    "boinc": ("/boinc/key", "BOINC clients"),
}
# Function that creates a private key file and returns the public key, by kind.
_KINDS = {"project": _make_project_key, "boinc": key_holder.create}


@click.group()
def app() -> None:
    """Sign BOTs, so that volunteers' clients run them; create and rotate signing keys.

    On a machine with the keys and the network: gridbot app sign BOT.

    With the keys on an offline machine: `fetch` BOTs into a folder, carry it to that machine,
    `sign` it, carry it back, and `send` it.
    """


def _private_keys(command: Callable[..., R]) -> Callable[..., R]:
    project = click.option(
        "--project-key", type=FILE, help="The project's private key, for strangers' clients."
    )
    boinc = click.option("--boinc-key", type=FILE, help="Private key that signs for BOINC clients.")
    return project(boinc(command))


_yes = click.option("--yes", is_flag=True, help="Sign without confirmation.")


@app.command(name="keys")
@click.argument("folder", type=FOLDER)
@click.option(
    "--only", type=click.Choice(list(_KINDS)), help="Create only this key.  [default: both]"
)
def make_keys(folder: Path, only: str | None) -> None:
    """Create a project's signing keys in FOLDER.

    Keep the .key files secret.  Copy the .pub files into the server's data directory before its
    first start.
    """
    with _expected():
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{kind}.key" for kind in _KINDS if only in (None, kind)]
        if there := [path for path in paths if path.exists()]:
            raise KeyFileError(f"{there[0]} exists and is never overwritten; name another folder")
        for path in paths:
            public = _KINDS[path.stem](path)
            write_atomically(path.with_suffix(".pub"), public.strip() + "\n", mode=0o644)
            click.echo(f"private key: {path}  public key: {path.with_suffix('.pub')}")


@app.command()
@click.argument("bots", metavar="BOT...", type=click.IntRange(1), nargs=-1, required=True)
@click.option("--to", "folder", type=FOLDER, required=True, help="Folder to write.")
@with_session
def fetch(session: Session, bots: tuple[int, ...], folder: Path) -> None:
    """Download BOTs into a folder, to sign them on an offline machine."""
    with _expected():
        for bot in bots:
            _fetch(session, bot, SigningBundle(folder), with_files=True)
    click.echo(f"next, on the machine with the keys: gridbot app sign {folder} --project-key FILE")


@app.command()
@click.argument("target", metavar="BOT|FOLDER")
@_private_keys
@_yes
@server_options
def sign(
    target: str,
    yes: bool,
    project_key: Path | None,
    boinc_key: Path | None,
    server: str | None,
    key_file: Path | None,
) -> None:
    """Sign a BOT of the server, or the BOTs in a fetched FOLDER.

    FOLDER is that of `gridbot app fetch`.  Shows each BOT's owner, command and inputs, and asks
    for confirmation.  The keys never leave this machine.  Signing a FOLDER needs no network.

    Without a key, your own signs a BOT of yours that was submitted without a signature.
    """
    with _expected():
        at_hand = _load(project_key, boinc_key)
        if target.isdecimal():
            with connect(server, key_file) as session:
                if at_hand == SigningKeys():
                    at_hand = SigningKeys(owner=session.signing_key().private)
                _sign_there(session, int(target), at_hand, yes)
        elif at_hand == SigningKeys():
            raise click.UsageError("missing a key: give --project-key, --boinc-key or both")
        else:
            _sign_here(SigningBundle(Path(target)), at_hand, yes)


@app.command()
@click.argument("folder", type=BUNDLE)
@with_session
def send(session: Session, folder: Path) -> None:
    """Send the signatures in FOLDER to the server, which verifies them."""
    with _expected():
        bundle = SigningBundle(folder)
        for kind in _ANNOUNCED:
            if key := bundle.key(kind):
                _announce(session, kind, key)
        _each(bundle.bots(), lambda bot: _send(session, bot, bundle))


@app.command()
@click.option("--project-key", type=FILE, help="The project's private key in use now.")
@click.option("--boinc-key", type=FILE, help="Private key for BOINC clients in use now.")
@click.option("--new-key", type=FILE, required=True, help="Key that takes its place, either half.")
@click.option(
    "--to", "folder", type=FOLDER, help="Write the signed new key into this folder, for `app send`."
)
@_yes
@server_options
def rotate(
    project_key: Path | None,
    boinc_key: Path | None,
    new_key: Path,
    folder: Path | None,
    yes: bool,
    server: str | None,
    key_file: Path | None,
) -> None:
    """Replace a signing key; sign unfinished BOTs again.

    The key is the project's, or that for BOINC clients.  The old key signs the new one, so
    that clients accept it.  If the new key is public only, the command lists the BOTs that still
    need a signature.

    A server that signs at submission needs the project's new private key as its project.key.
    """
    with _expected():
        link: Mapping[str, Any]
        if project_key and not boinc_key:
            kind: KeyKind = "project"
            link, private = keys.introduce(project_key, new_key)
            at_hand = SigningKeys(project=private)
        elif boinc_key and not project_key:
            kind = "boinc"
            link, signer = key_holder.introduce(boinc_key, new_key)
            at_hand = SigningKeys(stock=signer)
        else:
            raise click.UsageError("give the key in use now: --project-key or --boinc-key")
        if folder:
            SigningBundle(folder).put_key(kind, link)
            click.echo(f"signed; next, with the network: gridbot app send {folder}")
            return
        with connect(server, key_file) as session:
            bots = _announce(session, kind, link)
            _each(bots, lambda bot: _sign_anew(session, bot, kind, at_hand, yes))


# ----------------------------------------------------------------------------------- steps


def _load(project_key: Path | None, boinc_key: Path | None) -> SigningKeys:
    return SigningKeys(
        project=keys.load_private(project_key) if project_key else None,
        stock=key_holder.load_signer(boinc_key) if boinc_key else None,
    )


def _fetch(session: Session, bot: int, bundle: SigningBundle, with_files: bool) -> None:
    document = session.connection.get(f"/bots/{bot}/manifest")
    text = document["text"]
    if manifest_id(text) != document["id"]:
        raise GridbotError(f"bot {bot}: the manifest does not match its id; nothing is signed")
    parts = session.connection.get(f"/bots/{bot}/parts")["parts"]
    manifest = bundle.put(bot, text, parts)
    # Only stock clients' signatures cover contents, and they get no BOT with sources.
    for ref in manifest.inputs if with_files and not manifest.sources else ():
        bundle.put_file(ref, _download(session, bot, ref))


def _download(session: Session, bot: int, ref: FileRef) -> Iterator[bytes]:
    path = f"/bots/{bot}/inputs/{ref.sha256}"
    with session.connection.request("GET", path, stream=True) as answer:
        try:
            yield from answer.iter_content(_CHUNK_BYTES)
        except requests.RequestException as error:
            raise ServerAway(f"{ref.name}: the connection broke during download") from error


def _sign_here(bundle: SigningBundle, at_hand: SigningKeys, yes: bool) -> None:
    if not (bots := bundle.bots()):
        raise BundleError(
            f"{bundle.folder} holds no BOT; to fetch one: gridbot app fetch BOT --to FOLDER"
        )

    def step(bot: int) -> None:
        _approve(bot, bundle, yes)
        _sign(bot, bundle, at_hand)

    _each(bots, step)
    click.echo(f"signed; next, with the network: gridbot app send {bundle.folder}")


def _sign_there(session: Session, bot: int, at_hand: SigningKeys, yes: bool) -> None:
    with TemporaryDirectory(prefix="gridbot-sign-") as folder:
        bundle = SigningBundle(Path(folder))
        _fetch(session, bot, bundle, with_files=at_hand.stock is not None)
        _approve(bot, bundle, yes)
        _sign(bot, bundle, at_hand)
        _send(session, bot, bundle)


def _announce(session: Session, kind: KeyKind, link: Mapping[str, Any]) -> list[int]:
    """Tell the server the next key of a kind; return the BOTs that need its signature."""
    path, to_whom = _ANNOUNCED[kind]
    answer = session.connection.send("PUT", path, link)
    click.echo(f"the server now announces the new key to {to_whom}")
    found: list[int] = answer["unsigned"]
    return found


def _sign_anew(session: Session, bot: int, kind: KeyKind, at_hand: SigningKeys, yes: bool) -> None:
    if at_hand == SigningKeys():
        click.echo(f"bot {bot}: needs a signature: gridbot app sign {bot} --{kind}-key NEW")
    else:
        _sign_there(session, bot, at_hand, yes)


def _each(bots: Sequence[int], step: Callable[[int], None]) -> None:
    """Call `step` for each BOT; an error is printed and does not stop the others."""
    failed = 0
    for bot in bots:
        try:
            step(bot)
        except (GridbotError, BundleError, ProtocolError) as error:
            failed += 1
            say(f"bot {bot}: {error}")
    if failed:
        raise GridbotError(f"{failed} of {len(bots)} BOTs are not signed")


def _sign(bot: int, bundle: SigningBundle, at_hand: SigningKeys) -> None:
    why = bundle.sign(bot, at_hand)
    if why and at_hand.project is None and at_hand.owner is None:
        raise GridbotError(f"unsuitable for BOINC clients: {why}")
    if why:
        say(f"bot {bot}: unsuitable for BOINC clients: {why}")


def _send(session: Session, bot: int, bundle: SigningBundle) -> None:
    signed = bundle.signed(bot)
    for kind in ("owner", "native"):
        if kind in signed:
            session.connection.send("PUT", f"/bots/{bot}/signature", signed[kind])
    if "boinc" in signed:
        session.connection.send("PUT", f"/bots/{bot}/boinc", signed["boinc"])
    if signed:
        click.echo(f"bot {bot}: signed")


def _approve(bot: int, bundle: SigningBundle, yes: bool) -> None:
    """Show a BOT and ask for confirmation, unless `yes`.  Raises GridbotError if it is denied."""
    _show(bot, bundle.manifest(bot))
    try:
        if yes or click.confirm(f"sign BOT {bot}?", err=True):
            return
    except click.Abort:  # no terminal, or end of input: no other BOT can be confirmed either
        raise click.ClickException(
            f"BOT {bot} is not signed: confirm at a terminal, or check it and add --yes"
        ) from None
    raise GridbotError("not signed: not confirmed")


def _show(bot: int, manifest: Manifest) -> None:
    """Print what the signature covers: owner, command, placeholders, inputs, network."""
    say(f"BOT {bot} of {printable(manifest.owner)}")
    for row in manifest.programs:
        say(f"on      {row.where}: {printable(shlex.join(row.command))}")
    if not manifest.programs:
        say(f"command {printable(shlex.join(manifest.command))}")
    for name, kind in manifest.placeholders.items():
        say(f"filled  {{{printable(name)}}} with {_FILLINGS[kind]} of each job")
    for ref in manifest.inputs:
        program = "  (a program)" if ref.executable else ""
        say(f"input   {ref.sha256}  {printable(ref.name)}{program}")
    for item in manifest.job_inputs:
        program = "  (may be a program)" if item.executable else ""
        say(f"jobs' own inputs  {printable(item.name)}{program}")
    for name, urls in manifest.sources.items():
        for url in urls:
            say(f"fetched {printable(name)}  from {printable(url)}")
    if manifest.walls.network:
        say("network jobs may reach networks")


@contextmanager
def _expected() -> Iterator[None]:
    """Context that turns expected errors into a GridbotError of one line."""
    try:
        yield
    except (KeyFileError, BundleError, ProtocolError) as error:
        raise GridbotError(str(error)) from None
    except OSError as error:
        raise GridbotError(f"{error.filename or 'the disk'}: {error.strerror}") from None
