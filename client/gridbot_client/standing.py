"""What the answers of a client's machine came to, as its server says."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from gridbot_client.net.transport import Transport, TransportError
from gridbot_client.storage import Folder


def standing_of(folder: Folder) -> dict[str, Any] | None:
    """Ask the server for right, wrong and unchecked answers; None if it does not say."""
    identity = folder.identity()
    if identity is None:
        return None
    with suppress(TransportError, OSError):
        said = Transport(identity.url, identity.token).get_json("/api/v1/clients/self/standing")
        names = ("right", "wrong", "unchecked", "width")
        if isinstance(said, dict) and all(
            isinstance(said.get(name), int | float) for name in names
        ):
            return {name: said[name] for name in names}
    return None


def told_of(standing: Mapping[str, Any] | None) -> list[str]:
    """Lines for people: the numbers, and what follows from them."""
    if standing is None:
        return []
    right, wrong, width = standing["right"], standing["wrong"], int(standing["width"])
    lines = [f"answers: {right} right, {wrong} wrong, {standing['unchecked']} not checked yet"]
    if wrong:
        lines.append(
            "others disagree with some of this machine's answers: those are run again elsewhere,"
            " earn no credit, and it gets less work until it has made up for them"
        )
    lines.append(
        f"it may hold {width} replicas of other people at a time, more as answers prove right"
    )
    return lines
