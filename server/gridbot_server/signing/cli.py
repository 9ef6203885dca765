"""The verbs of `gridbot app`: sign what BOTs run, on a machine that is not the server.

The only part of the server that speaks to one as scientists do; the private keys stay where it
runs, and the server gets public keys and signatures.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import click
import requests

from gridbot.api.errors import GridbotError, ServerAway
from gridbot.api.session import Session, connect
from gridbot.commands.options import FILE, say, server_options, with_session
from gridbot.show.printing import printable
from gridbot_client.protocol.messages import FileRef, Manifest, ProtocolError, manifest_id
from gridbot_server.composition import STOCK_KEYS
from gridbot_server.signing import keys
from gridbot_server.signing.bundle import BundleError, SigningBundle, SigningKeys
from gridbot_server.signing.keys import KeyFileError
from gridbot_server.stock_clients import StockSigner
from gridbot_server.storage.disk import write_atomically

R = TypeVar("R")

_CHUNK_BYTES = 1 << 20
FOLDER = click.Path(file_okay=False, path_type=Path)
BUNDLE = click.Path(exists=True, file_okay=False, path_type=Path)


def _make_project_key(path: Path) -> str:
    keys.create(path)
    return keys.public_text(keys.load_private(path))


# What a signature lets the owner put into the command afterwards, by the placeholder's type.
_FILLINGS = {"int": "a whole number", "real": "a number", "text": "any text"}
# What makes a private key in a file, and gives its public half.
_KINDS = {"project": _make_project_key, "boinc": STOCK_KEYS.create}


@click.group()
def app() -> None:
    """Sign applications, so that volunteers run them.

    Where the keys are, with the server in reach: gridbot app sign BOT …  With the keys on a
    machine off the network: fetch, carry the folder there, sign it, carry it back, send.
    """


def _private_keys(command: Callable[..., R]) -> Callable[..., R]:
    project = click.option("--project-key", type=FILE, help="The private key for native clients.")
    boinc = click.option("--boinc-key", type=FILE, help="The private key for BOINC clients.")
    return project(boinc(command))


_yes = click.option("--yes", is_flag=True, help="Sign without asking.")


@app.command(name="keys")
@click.argument("folder", type=FOLDER)
@click.option("--only", type=click.Choice(list(_KINDS)), help="One of the two [both].")
def make_keys(folder: Path, only: str | None) -> None:
    """Make a project's keys in FOLDER, where they stay; the server gets the .pub files.

    It takes those that it finds in its data directory when it is first started.
    """
    with _expected():
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{kind}.key" for kind in _KINDS if only in (None, kind)]
        if there := [path for path in paths if path.exists()]:
            raise KeyFileError(f"{there[0]} is there already; keys are never overwritten")
        for path in paths:
            public = _KINDS[path.stem](path)
            write_atomically(path.with_suffix(".pub"), public.strip() + "\n", mode=0o644)
            click.echo(f"secret: {path}  for the server: {path.with_suffix('.pub')}")


@app.command()
@click.argument("bots", metavar="BOT...", type=click.IntRange(1), nargs=-1, required=True)
@click.option("--to", "folder", type=FOLDER, required=True, help="Where to put them.")
@with_session
def fetch(session: Session, bots: tuple[int, ...], folder: Path) -> None:
    """Fetch what BOTs run, to be signed on a machine off the network."""
    with _expected():
        for bot in bots:
            _fetch(session, bot, SigningBundle(folder), with_files=True)
    click.echo(f"carry {folder} to the keys, and there: gridbot app sign {folder} …")


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
    """Sign a BOT, or the BOTs fetched into a FOLDER, once you have seen what each runs.

    The keys never leave this machine, and a FOLDER is signed without any network.
    """
    with _expected():
        at_hand = _load(project_key, boinc_key)
        if target.isdecimal():
            with connect(server, key_file) as session:
                _sign_there(session, int(target), at_hand, yes)
        else:
            _sign_here(SigningBundle(Path(target)), at_hand, yes)


@app.command()
@click.argument("folder", type=BUNDLE)
@with_session
def send(session: Session, folder: Path) -> None:
    """Send what was signed in FOLDER to the server, which checks it."""
    with _expected():
        bundle = SigningBundle(folder)
        if key := bundle.key():
            session.connection.send("PUT", "/boinc/key", key)
            click.echo("BOINC clients are led to the new key")
        _each(bundle.bots(), lambda bot: _send(session, bot, bundle))


@app.command()
@click.option("--boinc-key", type=FILE, required=True, help="The private key in use now.")
@click.option("--new-key", type=FILE, required=True, help="The next one, private or public.")
@click.option("--to", "folder", type=FOLDER, help="Sign only, without network, for `app send`.")
@_yes
@server_options
def rotate(
    boinc_key: Path,
    new_key: Path,
    folder: Path | None,
    yes: bool,
    server: str | None,
    key_file: Path | None,
) -> None:
    """Lead BOINC clients to a new key, and sign the unfinished BOTs with it.

    If only the public half of the new key is here, it says which BOTs wait to be signed.
    """
    with _expected():
        link, signer = STOCK_KEYS.introduce(boinc_key, new_key)
        if folder:
            SigningBundle(folder).put_key(link)
            click.echo(f"signed; where the server is in reach: gridbot app send {folder}")
            return
        with connect(server, key_file) as session:
            answer = session.connection.send("PUT", "/boinc/key", link)
            click.echo("BOINC clients are led to the new key")
            _each(answer["unsigned"], lambda bot: _sign_anew(session, bot, signer, yes))


# ----------------------------------------------------------------------------------- steps


def _load(project_key: Path | None, boinc_key: Path | None) -> SigningKeys:
    if project_key is None and boinc_key is None:
        raise click.UsageError("give a key to sign with: --project-key, --boinc-key or both")
    return SigningKeys(
        keys.load_private(project_key) if project_key else None,
        STOCK_KEYS.load_signer(boinc_key) if boinc_key else None,
    )


def _fetch(session: Session, bot: int, bundle: SigningBundle, with_files: bool) -> None:
    document = session.connection.get(f"/bots/{bot}/manifest")
    text = document["text"]
    if manifest_id(text) != document["id"]:
        raise GridbotError(f"bot {bot}: the manifest came damaged; nothing is signed")
    manifest = bundle.put(bot, text)
    for ref in manifest.inputs if with_files else ():
        bundle.put_file(ref, _download(session, bot, ref))


def _download(session: Session, bot: int, ref: FileRef) -> Iterator[bytes]:
    path = f"/bots/{bot}/inputs/{ref.sha256}"
    with session.connection.request("GET", path, stream=True) as answer:
        try:
            yield from answer.iter_content(_CHUNK_BYTES)
        except requests.RequestException as error:
            raise ServerAway(f"{ref.name}: the connection broke while it came") from error


def _sign_here(bundle: SigningBundle, at_hand: SigningKeys, yes: bool) -> None:
    if not (bots := bundle.bots()):
        raise BundleError(f"{bundle.folder} holds no BOT: gridbot app fetch BOT --to FOLDER")

    def step(bot: int) -> None:
        _approve(bot, bundle, yes)
        _sign(bot, bundle, at_hand)

    _each(bots, step)
    click.echo(f"signed; where the server is in reach: gridbot app send {bundle.folder}")


def _sign_there(session: Session, bot: int, at_hand: SigningKeys, yes: bool) -> None:
    with TemporaryDirectory(prefix="gridbot-sign-") as folder:
        bundle = SigningBundle(Path(folder))
        _fetch(session, bot, bundle, with_files=at_hand.stock is not None)
        _approve(bot, bundle, yes)
        _sign(bot, bundle, at_hand)
        _send(session, bot, bundle)


def _sign_anew(session: Session, bot: int, signer: StockSigner | None, yes: bool) -> None:
    if signer is None:
        click.echo(f"bot {bot}: waits for: gridbot app sign {bot} --boinc-key NEW")
    else:
        _sign_there(session, bot, SigningKeys(stock=signer), yes)


def _each(bots: Sequence[int], step: Callable[[int], None]) -> None:
    """Do a step for BOTs one by one; one that fails does not keep the others waiting."""
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
    if why and at_hand.project is None:
        raise GridbotError(f"not for BOINC clients: {why}")
    if why:
        say(f"bot {bot}: not for BOINC clients: {why}")


def _send(session: Session, bot: int, bundle: SigningBundle) -> None:
    signed = bundle.signed(bot)
    if "native" in signed:
        body = {"signature": signed["native"]}
        session.connection.send("PUT", f"/bots/{bot}/signature", body)
    if "boinc" in signed:
        session.connection.send("PUT", f"/bots/{bot}/boinc", signed["boinc"])
    if signed:
        click.echo(f"bot {bot}: signed")


def _approve(bot: int, bundle: SigningBundle, yes: bool) -> None:
    """Show what a BOT runs and ask, unless `yes`; raise GridbotError when the answer is no."""
    _show(bot, bundle.manifest(bot))
    try:
        if yes or click.confirm(f"sign BOT {bot}?", err=True):
            return
    except click.Abort:  # nobody is there to answer, for this BOT or any other
        raise click.ClickException(
            f"BOT {bot} is not signed: answer at a terminal, or look at it and add --yes"
        ) from None
    raise GridbotError("not signed, as you said")


def _show(bot: int, manifest: Manifest) -> None:
    """Tell whoever signs what it is that volunteers will run."""
    say(f"BOT {bot} of {printable(manifest.owner)}")
    say(f"command {printable(shlex.join(manifest.command))}")
    for name, kind in manifest.placeholders.items():
        say(f"filled  {{{printable(name)}}} with {_FILLINGS[kind]} of each job")
    for ref in manifest.inputs:
        program = "  (a program)" if ref.executable else ""
        say(f"input   {ref.sha256}  {printable(ref.name)}{program}")


@contextmanager
def _expected() -> Iterator[None]:
    """Failures that one line explains."""
    try:
        yield
    except (KeyFileError, BundleError, ProtocolError) as error:
        raise GridbotError(str(error)) from None
    except OSError as error:
        raise GridbotError(f"{error.filename or 'the disk'}: {error.strerror}") from None
