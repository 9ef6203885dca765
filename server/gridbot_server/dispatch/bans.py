"""Hosts that an operator has shut out: what their clients are told.

A ban revokes a host's clients, so that whatever looks tokens up refuses them as it is; only those
that are refused are asked about a second time, for the reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from gridbot_server.errors import Forbidden
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection

SQL = sql.load("bans.sql")


class Banned(Forbidden):
    """The operator lets this host do nothing here."""

    def __init__(self, why: str) -> None:
        super().__init__(f"this machine is banned{': ' if why else ''}{why}")


def of_tokens(conn: Connection, refused: Sequence[bytes]) -> dict[bytes, Banned]:
    """Return which of the refused tokens, by their hashes, belong to clients of a banned host."""
    if not refused:
        return {}
    rows = conn.execute(SQL["bans"], {"hashes": list(refused)})
    return {token: Banned(why) for token, why in rows}
