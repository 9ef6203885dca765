"""`gridbot client join | trust`: whose work this machine does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from gridbot_client import joining
from gridbot_client.commands.failure import Failed, failed, not_joined
from gridbot_client.commands.options import (
    as_json,
    data_option,
    fingerprints_of,
    folder_of,
    identity_document,
    joined_text,
    key_option,
    project_key_option,
    tell,
    trust_option,
    trusted_text,
)
from gridbot_client.friends.lending import Friend
from gridbot_client.friends.roster import add_friend, folder_of_friend, named
from gridbot_client.host import description
from gridbot_client.joining import Pinning, own_fingerprints
from gridbot_client.net.discovery import Endpoint, NoServer, find_server
from gridbot_client.net.invitation import Invitation, InvitationError
from gridbot_client.net.transport import TransportError, final_url
from gridbot_client.storage import Folder, FolderBusy


@click.command()
@click.argument("url", metavar="URL|INVITATION")
@click.option("--key", metavar="KEY", help="Key of the server, such as a join key.")
@key_option
@trust_option
@project_key_option
@click.option(
    "--friend",
    "is_friend",
    is_flag=True,
    help="Work for this server only while the one that was joined first leaves CPUs idle."
    "  Friends are asked in the order in which they were joined.",
)
@click.option(
    "--share", type=click.IntRange(1, 100), metavar="PERCENT",
    help="With --friend: most of this machine's CPUs for it.  [default: 100]",
)  # fmt: skip
@data_option
@as_json
def join(
    url: str, key: str | None, key_file: Path | None, trusts: tuple[str, ...], project_key: str,
    is_friend: bool, share: int | None, data: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Join the server at URL, or accept an INVITATION.

    `gridbot invite` prints an invitation.  This machine then runs the BOTs of the person who made
    it, and what the project signs: by giving this command you trust their keys.

    Without one, an operator creates a key: gridbot token create NAME --scope join

    With a join key the client runs what the project signs.  With a key of your own it also runs
    your BOTs: it trusts the signing keys that the server knows as yours at that moment.
    """
    folder = home = folder_of(data)
    friend = None
    if share and not is_friend:
        raise click.UsageError("--share needs --friend")
    try:
        endpoint, pinning = _invited(url) or (
            Endpoint(url.rstrip("/"), key) if key else find_server(url, key_file),
            Pinning(project_key=project_key),
        )
        own = own_fingerprints(endpoint.url)
        endpoint = replace(endpoint, url=final_url(endpoint.url))
        pinning = replace(pinning, owners=(*pinning.owners, *trusts, *own))
        if is_friend:
            friend = _friend(home, endpoint.url, share or 100)
            folder = folder_of_friend(home, friend)
        with folder.lock():
            identity = joining.join(
                folder, endpoint, pinning, description.attributes(description.room(), folder.path)
            )
    except (
        NoServer, FolderBusy, InvitationError, joining.JoinError, TransportError,
    ) as error:  # fmt: skip
        raise failed(error) from None
    if friend:
        add_friend(home, friend)
    lines = f"{joined_text(identity)}\n{trusted_text(identity)}"
    tell(lines, identity_document(identity), as_json=as_json)


def _friend(home: Folder, url: str, share: int) -> Friend:
    """The friend at a URL.  Raises Failed if there is no home, or it is the one."""
    identity = home.identity()
    if identity is None:
        raise not_joined("a machine has friends beside a server of its own: join that first")
    if identity.url == url:
        raise Failed(f"{url} is this client's own server, and so no friend")
    return named(url, share)


def _invited(text: str) -> tuple[Endpoint, Pinning] | None:
    """Server, key and pins of an invitation; None for a URL.  Raises InvitationError."""
    if "#" not in text:
        return None
    found = Invitation.parse(text)
    return Endpoint(found.url, found.key), Pinning(found.owners, found.project_key, is_invited=True)


@click.command()
@click.argument("fingerprints", nargs=-1, required=True, callback=fingerprints_of)
@data_option
@as_json
def trust(fingerprints: tuple[str, ...], data: Path | None, as_json: bool) -> None:
    """Run BOTs that the keys with these FINGERPRINTS signed.

    Compare a fingerprint with what `gridbot key list` shows its owner.
    """
    folder = folder_of(data)
    try:
        with folder.lock():
            identity = folder.identity()
            if identity is None:
                raise not_joined("join with --trust FINGERPRINT")
            identity = joining.trusting(folder, identity, fingerprints)
            tell(trusted_text(identity), identity_document(identity), as_json=as_json)
    except FolderBusy:
        raise Failed(
            f"a client (pid {folder.holder()}) is running: stop it, then trust the key"
        ) from None
