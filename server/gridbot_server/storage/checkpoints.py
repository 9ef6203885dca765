"""Content of checkpoints goes as soon as no checkpoint is it any more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.files import Store
from gridbot_server.storage.rows import fetch_values

SQL = sql.load("checkpoints.sql")


def remove_unused(conn: Connection, store: Store, hashes: Sequence[bytes], now: datetime) -> None:
    """Remove content that was of checkpoints, once the transaction that took them is committed."""
    if hashes:
        for sha256 in fetch_values(conn, bytes, SQL["unused"], {"hashes": list(hashes)}):
            store.remove(sha256.hex(), now)
