"""Hosts that an operator has shut out: what their clients are told.

A ban revokes a host's clients, so that whatever looks tokens up refuses them as it is; only those
that are refused are asked about a second time, for the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gridbot_server.errors import Forbidden
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch

SQL = sql.load("bans.sql")


class Banned(Forbidden):
    """The operator lets this host do nothing here."""

    def __init__(self, why: str) -> None:
        super().__init__(f"this machine is banned{': ' if why else ''}{why}")


class _Ban(NamedTuple):
    """Why a token's host is banned."""

    hash: bytes
    banned_why: str


def of_tokens(conn: Connection, refused: Sequence[bytes]) -> dict[bytes, Banned]:
    """Return which of the refused tokens, by their hashes, belong to clients of a banned host."""
    if not refused:
        return {}
    found = fetch(conn, _Ban, SQL["bans"], {"hashes": list(refused)})
    return {ban.hash: Banned(ban.banned_why) for ban in found}
