"""Registers a client with a server, and sends its attributes at each start."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from gridbot_client.activity import ActivityLog, count_of
from gridbot_client.backoff import Backoff
from gridbot_client.host import description
from gridbot_client.net.discovery import Endpoint
from gridbot_client.net.transport import NotOurServer, ServerUnavailable, Transport
from gridbot_client.protocol.messages import Scalar
from gridbot_client.storage import Folder, Identity
from gridbot_client.work.slots import slots_in


class JoinError(Exception):
    """The client cannot join this server; the message says what to do."""


def join(
    folder: Folder,
    endpoint: Endpoint,
    accepts: tuple[str, ...],
    host: Mapping[str, Scalar],
    pinned: str | None = None,
    pilot: str = "",
) -> Identity:
    """Join a server and save the identity that it gives.

    With a `pinned` project key the server must show that key.  Joining again keeps waiting work,
    unless the project key shows that this is another project.  Raises JoinError, TransportError.
    """
    before = folder.identity()
    _check_free(folder, before, endpoint)
    body = {
        "host": dict(host),
        "mac": description.machine_id(),
        "accepts": list(accepts),
        "pilot": pilot,
    }
    with Transport(endpoint.url, endpoint.key) as transport:
        answer = transport.post_json("/api/v1/clients", body)
    try:
        identity = Identity(
            url=endpoint.url,
            token=str(answer["token"]),
            client=int(answer["client"]),
            owner=str(answer["owner"]),
            project_key=str(answer["project_key"]),
            # A pilot's key determines the owners that it serves.
            accepts=tuple(map(str, answer["accepts"])) if pilot else accepts,
        )
    except (KeyError, TypeError, ValueError):
        raise NotOurServer(f"{endpoint.url} is not a GridBot server: unexpected response") from None
    with Transport(identity.url, identity.token) as transport:
        introduce(transport, replace(identity, project_key=pinned or identity.project_key), host)
    if before and before.project_key != identity.project_key:
        folder.forget_work()
    # A pilot joins anew each time, and its jobs can read its files: no token is saved.
    if not pilot:
        folder.save_identity(identity)
    return identity


def patiently(
    join: Callable[[], Identity], patience_seconds: float | None, activity: ActivityLog
) -> Identity:
    """Join; retry while the server is away, for at most `patience_seconds`, None: for ever."""
    backoff, begun = Backoff(), time.monotonic()
    while True:
        try:
            return join()
        except (ServerUnavailable, NotOurServer) as error:
            floor = getattr(error, "retry_after", 0.0)
            backoff = backoff.failed(str(error), time.time(), random.random(), floor)  # noqa: S311
            wait = backoff.remaining(time.time())
            if patience_seconds is not None and time.monotonic() - begun + wait > patience_seconds:
                raise
            activity.say(f"cannot join yet ({error}); next try in {wait:.0f} s")
            time.sleep(wait)


def introduce(transport: Transport, identity: Identity, host: Mapping[str, Scalar]) -> None:
    """Send host attributes and accepted owners.  Raises NotOurServer if the project key changed."""
    body = {"accepts": list(identity.accepts), "host": dict(host)}
    answer = transport.post_json("/api/v1/clients/self", body, "PUT")
    if answer.get("project_key") != identity.project_key:
        raise NotOurServer(
            f"the project key of {identity.url} is not the one pinned when this client joined;"
            f" if the change is intended, join again: gridbot client join {identity.url}"
        )


def accepting(folder: Folder, identity: Identity, accepts: tuple[str, ...]) -> Identity:
    """Identity with other accepted owners, saved."""
    if not accepts or set(accepts) == set(identity.accepts):
        return identity
    changed = replace(identity, accepts=accepts)
    folder.save_identity(changed)
    return changed


def _check_free(folder: Folder, before: Identity | None, endpoint: Endpoint) -> None:
    if before is None or before.url == endpoint.url:
        return
    held = len(list(slots_in(folder.slots)))
    if held:
        raise JoinError(
            f"{folder.path} holds {count_of(held)} of {before.url}; finish them first with"
            " gridbot client run --once, or name another folder with --data DIR"
        )
