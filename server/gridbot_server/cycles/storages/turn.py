"""A turn of one storage: outputs get their final names, and what nobody expects is deleted."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from gridbot_server.cycles.storages.place import (
    PIECE_BYTES,
    OwnerStorage,
    bounded,
    final,
    incoming,
)
from gridbot_server.errors import StoreAway, StoreFull
from gridbot_server.settings import Settings
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.files import Store
from gridbot_server.storage.files.s3 import Bucket, StoredObject
from gridbot_server.storage.rows import fetch, fetch_values, has_row

SQL = sql.load("owner_storage.sql")

# What notes the fate of an output.
_PUBLISHED, _MISSING, _LOST = SQL["note_published"], SQL["note_missing"], SQL["note_lost"]

TURN_SECONDS = 20.0  # after which a turn begins nothing more
GRACE = timedelta(hours=1)  # in which what was begun with a URL that has expired comes to an end
LOST_SECONDS = 3600.0  # for which an object is missing before it is lost
_AT_ONCE = 64  # outputs or objects of a turn
_CALL_SECONDS, _BYTES_PER_SECOND = 15.0, 4 << 20  # for what is asked about one object


class _Unpublished(NamedTuple):
    """An output of a canonical replica that has not its final name yet."""

    bot: int
    seq: int
    replica: int
    name: str
    sha256: bytes
    size: int
    content: bytes | None  # None: a client has sent it to the storage
    key: str | None  # of that object
    is_long_missing: bool
    is_here: bool  # at the server, which has it of the BOT's owner

    @property
    def id(self) -> dict[str, int | str]:
        """Return the columns that name it."""
        return {"bot": self.bot, "seq": self.seq, "replica": self.replica, "name": self.name}

    @property
    def final(self) -> str:
        """Return its final name."""
        return final(self.bot, self.seq, self.name)

    @property
    def seconds(self) -> float:
        """Return how long a storage may take for it in all."""
        return _CALL_SECONDS + self.size / _BYTES_PER_SECOND


class _Swept(NamedTuple):
    """An object that is to go."""

    key: str
    url_ends: datetime


def take(
    conn: Connection, storage: OwnerStorage, settings: Settings,
    clock: Callable[[], float] = time.monotonic,
) -> int:  # fmt: skip
    """Publish and sweep; return how much was done.

    Raises StoreAway, StoreFull or StorageUnreadable; what went well before that stays.
    """
    bucket, ends_at = storage.bucket(settings), clock() + TURN_SECONDS
    store = settings.open_store()

    def goes_on() -> bool:
        return clock() < ends_at

    try:
        done = _publish(conn, storage, bucket, store, goes_on)
    except (StoreAway, StoreFull):
        _sweep(conn, storage, bucket, goes_on)  # the fault may be that of one output
        raise
    return done + _sweep(conn, storage, bucket, goes_on)


def _publish(
    conn: Connection, storage: OwnerStorage, bucket: Bucket, store: Store,
    goes_on: Callable[[], bool],
) -> int:  # fmt: skip
    """Give outputs their final names; return how many are where they stay, or lost.

    What failed before comes last: one that the storage always refuses keeps no other waiting.
    """
    values = {"storage": storage.id, "limit": _AT_ONCE, "lost": LOST_SECONDS}

    def some(*, again: bool) -> list[_Unpublished]:
        return fetch(conn, _Unpublished, SQL["unpublished"], {**values, "again": again})

    done = 0
    try:
        while goes_on() and (found := some(again=False) or some(again=True)):
            for output in itertools.takewhile(lambda _: goes_on(), found):
                done += _publish_one(conn, bucket, store, output)
    finally:
        for bot in fetch_values(conn, int, SQL["behind"], values):
            _advance(conn, bot)
    return done


def _advance(conn: Connection, bot: int) -> None:
    """Note how far a BOT's outcomes are published."""
    with conn.transaction():
        if has_row(conn, SQL["lock_behind"], {"bot": bot}):
            conn.execute(SQL["advance"], {"bot": bot})


def _publish_one(conn: Connection, bucket: Bucket, store: Store, output: _Unpublished) -> bool:
    """Give an output its final name and note what came of it; whether it is done with."""
    name = output.id
    try:
        with bounded(bucket, output.seconds) as asked:
            fate = _published(asked, store, output)
    except (StoreAway, StoreFull):
        conn.execute(SQL["note_failed"], name)
        raise
    conn.execute(fate, name)
    return fate != _MISSING


def _published(bucket: Bucket, store: Store, output: _Unpublished) -> bytes:
    """Give an output its final name; return the statement that notes what came of it."""
    if output.content is not None or output.size == 0:
        bucket.write(output.final, output.content or b"", output.sha256.hex())
        return _PUBLISHED
    sent = bucket.head(incoming(output.key), with_checksum=True) if output.key else None
    if sent is not None and _is(bucket, sent, output):
        bucket.copy(sent.key, output.final, sent.etag)
        return _PUBLISHED
    there = bucket.head(output.final, with_checksum=True)
    if there is not None and _is(bucket, there, output):
        return _PUBLISHED
    if output.is_here:  # an older server took it, while an update rolled out
        with suppress(FileNotFoundError), store.open(output.sha256.hex()) as file:
            bucket.write(output.final, file, output.sha256.hex())
            return _PUBLISHED
    is_lost = output.is_long_missing and bucket.is_there()
    return _LOST if is_lost else _MISSING


def _is(bucket: Bucket, found: StoredObject, output: _Unpublished) -> bool:
    """Whether an object is what was announced; one whose store does not say so is read."""
    if found.size != output.size:
        return False
    return (found.sha256 or _read(bucket, found)) == output.sha256.hex()


def _read(bucket: Bucket, found: StoredObject) -> str:
    """Return the SHA-256 of an object, in hex."""
    sha256 = hashlib.sha256()
    for first in range(0, found.size, PIECE_BYTES):
        sha256.update(bucket.piece(found, first, PIECE_BYTES))
    return sha256.hexdigest()


def _sweep(
    conn: Connection, storage: OwnerStorage, bucket: Bucket, goes_on: Callable[[], bool]
) -> int:
    """Delete what was sent and is not expected any more; return how many objects."""
    values = {"storage": storage.id, "limit": _AT_ONCE, "grace": GRACE}
    done = 0
    for swept in fetch(conn, _Swept, SQL["swept"], values):
        if not goes_on():
            break
        with bounded(bucket, _CALL_SECONDS) as asked:
            asked.delete(incoming(swept.key))
        conn.execute(SQL["forget"], swept._asdict())
        done += 1
    return done
