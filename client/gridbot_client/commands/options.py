"""What several commands of the client share: options, the folder, and words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gridbot_client.net.discovery import data_directory, login_path, places_of_keys
from gridbot_client.protocol.fields import is_sha256
from gridbot_client.storage import Folder, Identity
from gridbot_client.terminal import printable
from gridbot_client.work.confinement import hidden_places

RESUMES = "the next run continues its replicas"


def _fingerprint(_: click.Context, option: click.Parameter, value: str) -> str:
    if value and not is_sha256(value):
        raise click.BadParameter(
            f"{value!r} is no fingerprint: 64 lower-case hex digits", param=option
        )
    return value


def fingerprints_of(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Check fingerprints of keys.  Raises BadParameter."""
    return tuple(_fingerprint(context, option, value) for value in values)


data_option = click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the client; each running client needs its own."
    "  [default: client in GRIDBOT_DATA; /var/lib/gridbot if root; else ~/.local/share/gridbot]",
)
trust_option = click.option(
    "--trust", "trusts", multiple=True, metavar="FINGERPRINT", callback=fingerprints_of,
    help="Also run BOTs that this key signed, as its owner's `gridbot key list` shows it.  Another"
    " owner's needs an operator's key to join with.  Repeatable.",
)  # fmt: skip
project_key_option = click.option(
    "--project-key", metavar="FINGERPRINT", default="", callback=_fingerprint,
    help="Project key that the server must have.  [default: the one it shows at the join]",
)  # fmt: skip
key_option = click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File that holds a key of the server.  [default: GRIDBOT_KEY, or that of gridbot login]",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def tell(line: str, document: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what was done: a line for people, or the document."""
    click.echo(json.dumps(document) if as_json else line)


def folder_of(data: Path | None) -> Folder:
    """Folder of the client that --data names, or the usual one."""
    return Folder((data or data_directory("client")).absolute())


def hidden_from_tasks(folder: Path, *more: Path | None) -> tuple[str, ...]:
    """Paths that no task may see: keys, and folders of GridBot, with `more` of either."""
    usual = [login_path().parent, data_directory("server"), data_directory("overlay")]
    others = [*usual, *places_of_keys()]
    return hidden_places(folder, Path.home(), [*others, *filter(None, more)])


def identity_document(identity: Identity) -> dict[str, Any]:
    """Which client this is, and whose BOTs it runs, for --json; no token."""
    return {
        "server": identity.url, "owner": identity.owner, "client": identity.client,
        "project_key": identity.project_key, "trusts": list(identity.trusts),
    }  # fmt: skip


def joined_text(identity: Identity) -> str:
    """That a client has joined, and as whose."""
    return f"joined {identity.url} as {printable(identity.owner)}, client {identity.client}"


def trusted_text(identity: Identity) -> str:
    """Whose BOTs run here, in words."""
    strangers = f"runs what project key {identity.project_key} signed"
    if identity.signs_at_submission:
        strangers += " (the server itself holds that key: who breaks into it can sign as well)"
    if not identity.trusts:
        return (
            f"{strangers}, and nothing else; to run your own BOTs here:"
            " gridbot client trust FINGERPRINT (gridbot key list shows it)"
        )
    return f"{strangers}, and the BOTs of {', '.join(identity.trusts)}"
