"""Outputs that go to a storage of their owner: where they are sent, and fetched."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from flask import Response

from gridbot_client.protocol.messages import MAX_OUTPUTS
from gridbot_server.api.content import is_of, send_content
from gridbot_server.cycles.storages import place
from gridbot_server.cycles.storages.place import OwnerStorage
from gridbot_server.errors import HashMismatch, ObjectNotFound, StoreAway, TooLarge
from gridbot_server.http.services import connection, current
from gridbot_server.overload.transfer_slots import Party
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.files import Destination

SQL = sql.load("owner_storage.sql")

_ASK_SECONDS = 5.0  # for which a client waits for a storage
_SHA256_OF_NOTHING = hashlib.sha256().digest()
_MOST_CONTENTS = 4  # of one output, and of all of a replica on average: it may run again


@dataclass(frozen=True, slots=True)
class _Announced:
    """What a replica has announced beside the content in question."""

    of_name: int
    contents: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Kept:
    """An output of a job that is done."""

    seq: int
    name: str
    sha256: bytes
    size: int
    is_published: bool
    is_lost: bool
    key: str | None  # under which a client has sent it


def storage_of(conn: Connection, bot: int) -> OwnerStorage | None:
    """Return the storage to which a BOT's outputs go; None: they stay at the server."""
    return rows.read_one(conn, OwnerStorage, SQL["of_bot"], {"bot": bot})


def destination(storage: OwnerStorage, output: dict[str, Any], most_bytes: int) -> Destination:
    """Return where a client sends an output; `output` are the parameters of the queries.

    The row is written before the URL is signed, so that the sweep knows each object.  Raises
    TooLarge for more than a replica of `most_bytes` that runs a few times can have.
    """
    bucket = storage.bucket(current().settings)
    values = {**output, "storage": storage.id, "key": place.new_key(), "seconds": place.URL_SECONDS}
    with connection() as conn, conn.transaction():
        conn.execute(SQL["lock_replica"], output)
        said = rows.read_one(conn, _Announced, SQL["announced"], output)
        assert said is not None, "an aggregate gives a row"
        if said.of_name >= _MOST_CONTENTS or said.contents >= _MOST_CONTENTS * MAX_OUTPUTS:
            raise TooLarge(
                f"{output['name']}: {said.of_name} other contents of it, and {said.contents} of the"
                " replica, were announced already"
            )
        if said.bytes + output["size"] > _MOST_CONTENTS * most_bytes:
            raise TooLarge(f"{output['name']}: the replica announced {said.bytes} bytes already")
        key = rows.fetch_only_value(conn, str, SQL["announce"], values)
    now, sha256 = datetime.now(UTC), output["sha256"].hex()
    url, headers = place.url_to_write(bucket, key, sha256, output["size"], now)
    return Destination(url, output["size"], headers)


def check_arrived(storage: OwnerStorage, output: dict[str, Any]) -> None:
    """Make sure that an output has arrived, as far as its size tells: it is hashed when published.

    Raises StoreAway when it has not, or the storage does not say so in time; and HashMismatch for
    an empty one with the hash of something else.
    """
    if output["size"] == 0:
        if output["sha256"] != _SHA256_OF_NOTHING:
            raise HashMismatch(f"{output['name']}: no empty content has this SHA-256")
        return  # it is made when it is published
    with connection() as conn:
        key = rows.fetch_value(conn, str, SQL["announced_key"], output)
    if key is None:
        raise StoreAway(f"{output['name']} was not announced: begin again")
    party = Party(f"storage {storage.id}", f"owner {storage.owner}")
    bucket = storage.bucket(current().settings)
    with current().storages.held(party), place.bounded(bucket, _ASK_SECONDS) as asked:
        found = asked.head(place.incoming(key))
    if found is None or found.size != output["size"]:
        raise StoreAway(f"{output['name']} has not arrived at {storage.shown}: send it again")


def send_stored(storage: OwnerStorage, bot: int, seq: int, name: str) -> Response:
    """Lead to an output in a storage, whether it has its final name yet or not."""
    with connection() as conn:
        values = {"bot": bot, "seq": seq, "name": name}
        found = rows.read_one(conn, _Kept, SQL["kept_output"], values)
        is_here = found is not None and is_of(conn, storage.owner, found.sha256.hex())
    if found is not None and is_here and not (found.is_published or found.key):
        return send_content(found.sha256.hex())  # an older server took it
    if found is not None and found.size == 0 and not found.is_published:
        return Response(b"", mimetype="application/octet-stream")  # nobody had to send it
    if found is None or found.is_lost or not (found.is_published or found.key):
        raise ObjectNotFound(
            f"output {name[:200]!r} of job {seq} of BOT {bot} is lost: its object is not in the"
            f" storage {storage.name} any more"
        )
    there = place.final(bot, seq, name) if found.is_published else place.incoming(found.key or "")
    bucket = storage.bucket(current().settings)
    url = place.url_to_read(bucket, there, datetime.now(UTC))
    return Response(
        status=HTTPStatus.TEMPORARY_REDIRECT,
        headers={"Location": url, "Cache-Control": "no-store"},
    )
