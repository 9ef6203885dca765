"""Files of the store that nothing refers to any more go away.

A file is an owner's while a BOT of the owner's refers to it or a short time has not passed since it
was sent; when it is nobody's, it goes.  A file and its row of `blob` go apart: first the row, then,
in any later pass, a file without one.
What is just being stored is safe by its age: a file is younger than `GRACE` until its row, and what
refers to it, are committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.files import PARTIAL_LIFETIME, Store
from gridbot_server.storage.rows import fetch, fetch_values

SQL = sql.load("retention.sql")

# A file is as old as its last byte; a partial upload may complete without another one.
GRACE = PARTIAL_LIFETIME + timedelta(days=1)
PASS_SECONDS = 60.0
_BATCH = 1000
_LAST = b"\xff" * 33  # above every hash


def run_once(conn: Connection, store: Store, now: datetime) -> int:
    """Collect one of 256 parts of the store, the next one each minute; return how many went.

    `now` is by the clock of the store.
    """
    prefix = int(now.timestamp() / PASS_SECONDS) % 256
    return collect(conn, store, now, prefix)


def collect(conn: Connection, store: Store, now: datetime, prefix: int) -> int:
    """Collect the files whose hash begins with this byte; return how many went."""
    forget_owners(conn, prefix)
    forget_blobs(conn, prefix)
    return remove_files(conn, store, now, prefix)


class _Owned(NamedTuple):
    """A file, by its hash, and one of its owners."""

    sha256: bytes
    owner: int


def forget_owners(conn: Connection, prefix: int, limit: int = _BATCH) -> int:
    """Take old files from owners whose BOTs do not refer to them, in batches; return how many."""
    forgotten, after = 0, _Owned(bytes([prefix]), 0)
    while True:
        page = {"after": after.sha256, "after_owner": after.owner, "end": _end(prefix)}
        old = _owned(conn, "old_owners", {**page, "grace": GRACE, "limit": limit})
        if disused := _owned(conn, "disused", _columns(old)):
            with conn.transaction():
                locked = _owned(conn, "lock_owners", {**_columns(disused), "grace": GRACE})
                forgotten += conn.execute(SQL["forget_owners"], _columns(locked)).rowcount
        if len(old) < limit:
            return forgotten
        after = old[-1]


def _owned(conn: Connection, query: str, values: dict[str, Any]) -> list[_Owned]:
    with conn.transaction():
        conn.execute(SQL["plan_by_keys"])
        return fetch(conn, _Owned, SQL[query], values)


def _columns(pairs: list[_Owned]) -> dict[str, Any]:
    return {"hashes": [pair.sha256 for pair in pairs], "owners": [pair.owner for pair in pairs]}


def _end(prefix: int) -> bytes:
    return bytes([prefix + 1]) if prefix < 255 else _LAST


def forget_blobs(conn: Connection, prefix: int, limit: int = _BATCH) -> int:
    """Remove the rows of old files that nothing refers to, in batches; return how many."""
    forgotten, after = 0, bytes([prefix])
    while True:
        page = {"after": after, "end": _end(prefix), "grace": GRACE, "limit": limit}
        old = _hashes(conn, "old_blobs", page)
        if loose := _hashes(conn, "unreferenced", {"hashes": old}):
            with conn.transaction():
                locked = _hashes(conn, "lock_blobs", {"hashes": loose, "grace": GRACE})
                forgotten += conn.execute(SQL["forget_blobs"], {"hashes": locked}).rowcount
        if len(old) < limit:
            return forgotten
        after = old[-1]


def _hashes(conn: Connection, query: str, values: dict[str, Any]) -> list[bytes]:
    with conn.transaction():
        conn.execute(SQL["plan_by_keys"])
        return fetch_values(conn, bytes, SQL[query], values)


def remove_files(conn: Connection, store: Store, now: datetime, prefix: int) -> int:
    """Remove old files that have no row; return how many."""
    removed, before = 0, now - GRACE
    for batch in _batches(store.old(prefix, before)):
        hashes = {"hashes": [bytes.fromhex(sha256) for sha256 in batch]}
        known = {sha256.hex() for sha256 in _hashes(conn, "known_blobs", hashes)}
        removed += sum(store.remove(sha256, before) for sha256 in batch if sha256 not in known)
    return removed


def _batches(hashes: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(hashes, _BATCH)):
        yield batch
