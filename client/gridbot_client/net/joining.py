"""Makes a client known to a server, and introduces it again at each start."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from gridbot_client.host import description
from gridbot_client.net.backoff import Backoff
from gridbot_client.net.discovery import Endpoint
from gridbot_client.net.transport import NotOurServer, ServerAway, Transport
from gridbot_client.progress import Progress
from gridbot_client.protocol.messages import Scalar
from gridbot_client.storage import Folder, Identity
from gridbot_client.work.slots import slots_in


class JoinError(Exception):
    """The client cannot join like this; says what to do instead."""


def join(
    folder: Folder,
    endpoint: Endpoint,
    accepts: tuple[str, ...],
    host: Mapping[str, Scalar],
    pinned: str | None = None,
    pilot: str = "",
) -> Identity:
    """Join a server and remember it once it knows us; transport errors pass through.

    With a `pinned` project key no other is believed.  Otherwise joining again keeps work that
    waits, unless the key shows that this is another project.
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
            # Whom a pilot serves, its key says.
            accepts=tuple(map(str, answer["accepts"])) if pilot else accepts,
        )
    except (KeyError, TypeError, ValueError):
        raise NotOurServer(f"{endpoint.url} does not answer as a GridBot server does") from None
    with Transport(identity.url, identity.token) as transport:
        introduce(transport, replace(identity, project_key=pinned or identity.project_key), host)
    if before and before.project_key != identity.project_key:
        folder.forget_work()
    # A pilot joins anew each time, and its jobs, which may read its files, shall find no token.
    if not pilot:
        folder.save_identity(identity)
    return identity


def patiently(
    join: Callable[[], Identity], patience_seconds: float | None, progress: Progress
) -> Identity:
    """Join; a server that is still starting or away is waited for, but not longer than told."""
    backoff, begun = Backoff(), time.monotonic()
    while True:
        try:
            return join()
        except (ServerAway, NotOurServer) as error:
            floor = getattr(error, "retry_after", 0.0)
            backoff = backoff.failed(str(error), time.time(), random.random(), floor)  # noqa: S311
            wait = backoff.remaining(time.time())
            if patience_seconds is not None and time.monotonic() - begun + wait > patience_seconds:
                raise
            progress.say(f"cannot join yet ({error}), next try in {wait:.0f} s")
            time.sleep(wait)


def introduce(transport: Transport, identity: Identity, host: Mapping[str, Scalar]) -> None:
    """Tell the server what this client is and accepts; NotOurServer when its key changed."""
    body = {"accepts": list(identity.accepts), "host": dict(host)}
    answer = transport.post_json("/api/v1/clients/self", body, "PUT")
    if answer.get("project_key") != identity.project_key:
        raise NotOurServer(
            f"{identity.url} shows another project key than the one pinned when this client"
            f" joined; if that is meant, say gridbot client join {identity.url}"
        )


def accepting(folder: Folder, identity: Identity, accepts: tuple[str, ...]) -> Identity:
    """The identity with other accepted owners, remembered."""
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
            f"{folder.path} holds {held} replicas of {before.url}: let them finish with"
            " gridbot client run --once, or use another folder with --data DIR"
        )
