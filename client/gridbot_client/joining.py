"""Registers a client with a server, and sends its attributes at each start."""

from __future__ import annotations

import random
import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from gridbot_client.activity import ActivityLog, count_of
from gridbot_client.backoff import REQUESTS
from gridbot_client.host import description
from gridbot_client.net.discovery import Endpoint, own_signing_keys
from gridbot_client.net.transport import (
    NotOurServer,
    RequestRefused,
    ServerUnavailable,
    Transport,
)
from gridbot_client.protocol.fields import sha256
from gridbot_client.protocol.messages import VERSION, ProtocolError, Scalar, introductions
from gridbot_client.protocol.signatures import fingerprint, reachable
from gridbot_client.storage import Folder, Identity
from gridbot_client.work.slots import slots_in

_OWN_KEYS = ("gb_user_", "gb_operator_")


class JoinError(Exception):
    """The client cannot join this server; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Pinning:
    """Keys that a client trusts from the start, by fingerprint, as its user or constructor says.

    Without `project_key` it pins the key that the server shows when it joins.  `is_invited` if an
    invitation says so.
    """

    owners: tuple[str, ...] = ()
    project_key: str = ""
    is_invited: bool = False


def join(
    folder: Folder,
    endpoint: Endpoint,
    pinning: Pinning,
    host: Mapping[str, Scalar],
    pilot: str = "",
) -> Identity:
    """Join a server and save the identity that it gives.

    Joining again keeps waiting work, unless the project key shows that this is another project.
    Raises JoinError, TransportError.
    """
    before = folder.identity()
    _check_free(folder, before, endpoint)
    body = {**_words(pinning.owners, host), "mac": description.machine_id(), "pilot": pilot}
    with Transport(endpoint.url, endpoint.key) as transport:
        answer = _joined(transport, body, endpoint.url)
    identity = _given(endpoint, pinning, answer)
    with Transport(identity.url, identity.token) as transport:
        introduce(transport, identity, host)
    if before and before.project_key != identity.project_key:
        folder.forget_work()
    # A pilot joins anew each time, and its jobs can read its files: no token is saved.
    if not pilot:
        folder.save_identity(identity)
    return identity


def join_again(folder: Folder, identity: Identity, host: Mapping[str, Scalar]) -> Identity:
    """Join a server that was restored from an older backup, with the receipt of the first time.

    Raises RequestRefused if it was not restored, or does not take the receipt.
    """
    body = {**_words(identity.trusts, host), "receipt": identity.receipt}
    with Transport(identity.url, identity.token) as transport:
        answer = transport.post_json("/api/v1/clients/again", body)
    invitation = identity.invitation
    pinning = Pinning(identity.trusts, identity.project_key, is_invited=bool(invitation))
    fresh = _given(Endpoint(identity.url, invitation), pinning, answer)
    with Transport(fresh.url, fresh.token) as transport:
        introduce(transport, fresh, host)
    folder.save_identity(fresh)
    return fresh


def _words(owners: tuple[str, ...], host: Mapping[str, Scalar]) -> dict[str, object]:
    """What a client says of itself when it joins."""
    return {"host": dict(host), "protocol": VERSION, "trusts": list(owners)}


def _given(endpoint: Endpoint, pinning: Pinning, answer: Mapping[str, Any]) -> Identity:
    """The identity that a server gives.  Raises NotOurServer."""
    try:
        return Identity(
            url=endpoint.url,
            token=str(answer["token"]),
            client=int(answer["client"]),
            owner=str(answer["owner"]),
            project_key=pinning.project_key or fingerprint(b64decode(answer["project_key"])),
            project=sha256(answer["project"], "project"),
            trusts=tuple(dict.fromkeys((*pinning.owners, *_told(endpoint, answer)))),
            invitation=endpoint.key if pinning.is_invited else "",
            receipt=str(answer.get("receipt", "")),  # older servers give none
            signs_at_submission=answer.get("signs_at_submission") is True,  # nor tell this
        )
    except (KeyError, TypeError, ValueError, ProtocolError):
        raise NotOurServer(f"{endpoint.url} is not a GridBot server: unexpected response") from None


def _joined(transport: Transport, body: Mapping[str, object], url: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = transport.post_json("/api/v1/clients", body)
    except RequestRefused as error:
        if error.code == 400 and "protocol" in str(error):
            raise JoinError(_too_old(url)) from None
        raise
    return found


def _told(endpoint: Endpoint, answer: Mapping[str, Any]) -> list[str]:
    """Fingerprints of the owner's keys, which count if the user joined with a key of their own.

    Such a key shows its scope.  Whoever joins with a join key is a stranger to all owners, whatever
    the server says.
    """
    if not endpoint.key.startswith(_OWN_KEYS):
        return []
    return [sha256(item, "owner_keys") for item in answer["owner_keys"]]


def own_fingerprints(url: str) -> tuple[str, ...]:
    """Fingerprints of the signing keys that this user has on this machine for the server at `url`.

    A file that holds no key is nobody's.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    found = []
    for path in own_signing_keys(url):
        with suppress(OSError, ValueError, TypeError):
            key = load_pem_private_key(path.read_bytes(), password=None)
            if isinstance(key, Ed25519PrivateKey):
                found.append(fingerprint(key.public_key().public_bytes_raw()))
    return tuple(found)


def patiently(
    join: Callable[[], Identity], patience_seconds: float | None, activity: ActivityLog
) -> Identity:
    """Join; retry while the server is away, for at most `patience_seconds`, None: for ever.

    It gives up at once when no further try would come in time: a pilot does not wait in vain.
    """
    failures, begun = 0, time.monotonic()
    while True:
        try:
            return join()
        except (ServerUnavailable, NotOurServer) as error:
            failures += 1
            wait = REQUESTS.after(error, failures, random.random())  # noqa: S311
            if patience_seconds is not None and time.monotonic() - begun + wait > patience_seconds:
                raise
            activity.say(f"cannot join yet ({error}); next try in {wait:.0f} s")
            time.sleep(wait)


def introduce(transport: Transport, identity: Identity, host: Mapping[str, Scalar]) -> None:
    """Send host attributes and the fingerprints of trusted owners' keys.

    Raises NotOurServer for a server that shows a project key to which the pinned one does not lead.
    """
    body = {"host": dict(host), "trusts": list(identity.trusts), "protocol": VERSION}
    answer = transport.post_json("/api/v1/clients/self", body, "PUT")
    try:
        shown = fingerprint(b64decode(answer["project_key"]))
        links = introductions(answer)
    except (KeyError, TypeError, ValueError, ProtocolError):
        raise NotOurServer(f"{identity.url} is not a GridBot server: unexpected response") from None
    if answer.get("protocol") != VERSION:
        raise NotOurServer(_too_old(identity.url))
    if shown not in reachable([identity.project_key], links):
        raise NotOurServer(
            f"the project key of {identity.url} is not the one pinned, {identity.project_key};"
            f" if the change is intended, join again: gridbot client join {identity.url}"
        )


def trusting(folder: Folder, identity: Identity, owners: tuple[str, ...]) -> Identity:
    """Identity that also trusts these owners' keys, saved."""
    more = tuple(owner for owner in owners if owner not in identity.trusts)
    if not more:
        return identity
    changed = replace(identity, trusts=(*identity.trusts, *more))
    folder.save_identity(changed)
    return changed


def _too_old(url: str) -> str:
    return (
        f"{url} speaks an older version of the protocol, in which signatures do not cover what"
        " runs; ask its operator to update it"
    )


def _check_free(folder: Folder, before: Identity | None, endpoint: Endpoint) -> None:
    if before is None or before.url == endpoint.url:
        return
    held = len(list(slots_in(folder.slots)))
    if held:
        raise JoinError(
            f"{folder.path} holds {count_of(held)} of {before.url}; finish them first with"
            " gridbot client run --once, or name another folder with --data DIR"
        )
