"""What the views have in common: whose BOT it is, and what it runs."""

from __future__ import annotations

from dataclasses import dataclass

from gridbot_server.errors import ObjectNotFound
from gridbot_server.http import auth
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection

SQL = sql.load("bots.sql")


@dataclass(frozen=True, slots=True)
class StoredManifest:
    """What a BOT runs, and the signatures over it of the project's and the owner's key."""

    manifest: str
    signature: bytes | None
    owner_signature: bytes | None


def bot_owner(conn: Connection, bot: int) -> int:
    """Return the owner of a BOT that this key may touch.

    Another owner's BOT is ObjectNotFound, so that nobody learns which numbers exist.
    """
    owner = rows.fetch_value(conn, int, SQL["owner"], {"bot": bot})
    key = auth.key()
    if owner is None or not (key.is_operator or owner == key.owner):
        raise ObjectNotFound(f"there is no BOT {bot}")
    return owner


def mine() -> int | None:
    """Return the owner to whom this key's lists are limited; None for an operator."""
    key = auth.key()
    return None if key.is_operator else key.owner


def manifest_of(conn: Connection, bot: int) -> StoredManifest:
    """Return the manifest of a BOT that the caller has seen."""
    found = rows.read_one(conn, StoredManifest, SQL["manifest"], {"bot": bot})
    assert found is not None, "the caller has seen the BOT"
    return found
