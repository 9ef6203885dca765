"""Storages: buckets of owners, to which outputs of their BOTs go."""

from __future__ import annotations

import logging
import secrets
from http import HTTPStatus
from typing import Any

from flask import Blueprint

from gridbot_server.api.schema import answers, json_body
from gridbot_server.cycles.storages.place import (
    NewStorage,
    OwnerStorage,
    StorageUnreadable,
    checked_place,
    text_of,
)
from gridbot_server.errors import Conflict, ObjectNotFound, RequestError, StoreAway, StoreFull
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.models.requests import StorageRequest
from gridbot_server.models.responses.storages import RemovedStorage, StorageState, StorageStates
from gridbot_server.overload.transfer_slots import Party
from gridbot_server.storage import rows, sql, storage_key
from gridbot_server.storage.db import Connection
from gridbot_server.storage.storage_key import StorageKeyError

SQL = sql.load("owner_storage.sql")

MOST_STORAGES = 10  # of an owner
_TRY_SECONDS = 20.0  # in which a new storage shows that it can be used

log = logging.getLogger(__name__)

blueprint = Blueprint("storages", __name__, url_prefix="/api/v1/storages")


@blueprint.get("")
@auth.rule("user")
@answers()
def list_storages() -> StorageStates:
    """List the caller's storages, and what is on its way to them."""
    with connection() as conn:
        return StorageStates(storages=_listed(conn, auth.key().owner))


@blueprint.post("")
@auth.rule("user")
@json_body
@answers(HTTPStatus.CREATED, errors=(HTTPStatus.CONFLICT,))
def add_storage(json: StorageRequest) -> StorageState:
    """Add a storage, or give one other keys: an object is written there and deleted, to try it."""
    owner = auth.key().owner
    place = checked_place(json.place, current().settings)
    new = NewStorage(owner, json.name, place, json.access_key, json.secret_key)
    with connection() as conn:
        known = _named(conn, owner, json.name)
    if known is not None and known.place != text_of(place):
        raise Conflict(f"name: storage {json.name} is at {known.shown}: give another name")
    tag = known.tag if known else secrets.token_hex(6)
    with current().storages.held(Party(f"owner {owner}", f"owner {owner}")):
        try:
            new.check(tag, _TRY_SECONDS)
        except (StoreAway, StoreFull) as error:
            raise RequestError(f"place: {error.detail}") from None
    with connection() as conn, conn.transaction():
        conn.execute(SQL["lock"])
        now = _named(conn, owner, json.name)
        if (now and now.tag) != (known and known.tag):
            raise Conflict(f"name: storage {json.name} was changed meanwhile: try again")
        if known is None:
            count = rows.fetch_only_value(conn, int, SQL["count"], {"owner": owner})
            if count >= MOST_STORAGES:
                raise Conflict(f"name: there are {count} storages already, the most of an owner")
        conn.execute(SQL["add"], _row(conn, new, tag))
        return next(item for item in _listed(conn, owner) if item.name == json.name)


@blueprint.delete("/<name>")
@auth.rule("user")
@answers(errors=(HTTPStatus.CONFLICT,))
def remove_storage(name: str) -> RemovedStorage:
    """Forget a storage and its keys; what was written there stays.

    Not while BOTs speak of it: their outputs are fetched with its keys.
    """
    with connection() as conn, conn.transaction():
        conn.execute(SQL["lock"])
        found = _named(conn, auth.key().owner, name)
        if found is None:
            raise ObjectNotFound(f"there is no storage {name[:100]!r} of yours")
        values = {"storage": found.id}
        conn.execute(SQL["lock_row"], values)
        if bots := rows.fetch_values(conn, int, SQL["bots"], values):
            listed = ", ".join(map(str, bots))
            raise Conflict(
                f"outputs of BOTs are there: {listed}; delete these BOTs before (it takes minutes)"
            )
        objects = rows.fetch_only_value(conn, int, SQL["incoming"], values)
        conn.execute(SQL["remove"], values)
    return RemovedStorage(name=name, place=found.shown, objects_left=objects)


def _row(conn: Connection, new: NewStorage, tag: str) -> dict[str, Any]:
    """Return the columns of a storage; its secret is sealed with this server's key."""
    path = current().settings.storage_key_path
    try:
        # Only the first storage makes a key: another machine's is to be copied here.
        has_any = rows.has_row(conn, SQL["has_any"])
        key = storage_key.load(path) if has_any else storage_key.create(path)
    except (StorageKeyError, OSError) as error:
        log.error("no storage can be added: %s", error)
        raise StorageUnreadable("this server has no key for storages: tell its operator") from None
    return {
        "owner": new.owner, "name": new.name, "tag": tag, "place": text_of(new.place),
        "access_key": new.access_key, "secret_key": new.sealed(key, tag),
    }  # fmt: skip


def _named(conn: Connection, owner: int, name: str) -> OwnerStorage | None:
    return rows.read_one(conn, OwnerStorage, SQL["named"], {"owner": owner, "name": name})


def _listed(conn: Connection, owner: int) -> list[StorageState]:
    return rows.read(conn, StorageState, SQL["list"], {"owner": owner})
