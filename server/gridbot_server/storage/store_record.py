"""What a file store keeps about its database, so that neither is used with another's past.

Theory of operation
===================

A database and a file store are made together, and belong together.  Two mistakes are made with
them: a server is started with the folder of another database, and a database is put back to an
earlier state by tools that know nothing of GridBot.  Therefore the database has an identity and a
revision, and the store holds two files about it:

    store.json       the identity, the revision, the epoch, the last numbers that were given
    withdrawn.json   what was revoked or banned

Each minute, and at each start and end of a server, the revision rises, in the database first and
then in the store (`keep`).  So the store
never knows a higher revision than its database, unless the database was put back.  A server that
starts on such a database, or with another store or none, refuses to (`pair`).  `accept` goes on
with it: in a new epoch, with numbers that were never given, and with what was withdrawn meanwhile
withdrawn again.  The same is done unasked where a database goes back while servers use it, as
after a failover to a standby that lacked the last seconds.

What happened in the last minute before a loss may be missing in the store.  Numbers jump by far
more than a minute gives.
"""

from __future__ import annotations

import logging
import secrets
from typing import NamedTuple, TypeVar

import msgspec

from gridbot_server.errors import StoreAway
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.files import Store
from gridbot_server.storage.rows import (
    encode,
    fetch,
    fetch_mapping,
    fetch_only,
    fetch_values,
)

log = logging.getLogger(__name__)

SQL = sql.load("store_record.sql")
SIGNING = sql.load("signing.sql")

_RECORD, _WITHDRAWN = "store.json", "withdrawn.json"
_JUMP = {"integer": 10_000, "bigint": 1_000_000}  # of numbers, by the type of their column
_COMMAND = "gridbot server restore --in-place"

S = TypeVar("S", bound=msgspec.Struct)


class StoreMismatch(Exception):
    """Database and file store do not belong together; the message says what to do."""


class StoreRecord(msgspec.Struct, frozen=True):
    """What a store knows of its database; `numbers` are the last of each sequence, by its name."""

    identity: str
    revision: int
    epoch: int
    numbers: dict[str, int]


class WithdrawnSignature(msgspec.Struct, frozen=True):
    """A key or a manifest that its owner revoked; all in hex."""

    subject: str
    signer: str
    signature: str


class WithdrawnHost(msgspec.Struct, frozen=True):
    """A machine that an operator banned."""

    identity: str
    why: str


class Withdrawn(msgspec.Struct, frozen=True):
    """What may not come back with an earlier state of the database; hashes in hex."""

    revocations: list[WithdrawnSignature] = []
    keys: list[str] = []  # hashes of tokens, as `clients`
    clients: list[str] = []
    hosts: list[WithdrawnHost] = []


class _Mark(NamedTuple):
    """What the database knows of its store."""

    identity: str
    epoch: int
    revision: int


class _Sequence(NamedTuple):
    name: str
    type: str


# ------------------------------------------------------------------------------ at a start


def pair(conn: Connection, store: Store) -> None:
    """Raise StoreMismatch unless database and store belong together; a first start joins them."""
    with conn.transaction():
        mark = fetch_only(conn, _Mark, SQL["mark"])
        known = read_record(store)
        if known is None and mark.revision == 0:
            # In this order: a start that is killed between the two is made again.
            _write(conn, store, mark)
            conn.execute(SQL["set_revision"], {"revision": 1})
            return
    _refuse(store, known, mark)
    keep(conn, store)


def _refuse(store: Store, known: StoreRecord | None, mark: _Mark) -> None:
    if known is None:
        raise StoreMismatch(
            f"{store} is not the file store of this database: it has no {_RECORD}; share one"
            f" folder between all servers of a database, or if its files are lost: {_COMMAND}"
        )
    _refuse_other(store, known, mark)
    if known.revision > mark.revision:
        raise StoreMismatch(
            f"the database is older than its file store {store} ({mark.revision} against"
            f" {known.revision} in the store): it was restored by other tools; to go on with"
            f" it: {_COMMAND}"
        )


def accept(conn: Connection, store: Store) -> None:
    """Go on with a database that was put back; also with an empty store.  Raises StoreMismatch."""
    with conn.transaction():
        mark, known = fetch_only(conn, _Mark, SQL["mark"]), read_record(store)
        if known:
            _refuse_other(store, known, mark)
        _go_on(conn, store, mark, known)
    keep(conn, store)


def _refuse_other(store: Store, known: StoreRecord, mark: _Mark) -> None:
    if known.identity != mark.identity:
        raise StoreMismatch(
            f"{store} is the file store of another database ({known.identity}, and this one has"
            f" {mark.identity}): name the folder that belongs to it"
        )


# ----------------------------------------------------------------------------- each minute


def keep(conn: Connection, store: Store) -> int:
    """Let the store know how far the database is; returns 0, since there is no further work."""
    with conn.transaction():
        mark, known = fetch_only(conn, _Mark, SQL["mark"]), read_record(store)
        if known is None or known.identity != mark.identity:
            log.error("%s", fault(store, mark.identity))
            return 0
        if known.revision > mark.revision:
            log.error(
                "the database went back from revision %d to %d: a new epoch begins, and what was"
                " revoked or banned is so again", known.revision, mark.revision,
            )  # fmt: skip
            _go_on(conn, store, mark, known)
            mark = fetch_only(conn, _Mark, SQL["mark"])
        mark = mark._replace(revision=mark.revision + 1)
        conn.execute(SQL["set_revision"], {"revision": mark.revision})
    with conn.transaction():
        _write(conn, store, mark)
    return 0


def fault(store: Store, identity: str) -> str:
    """Say why a store cannot be that of a database with this identity; "" if it can."""
    try:
        known = read_record(store)
    except (OSError, StoreMismatch, StoreAway) as error:
        return f"the file store cannot be used: {error}"
    if known is None:
        return f"the file store is gone: {store} has no {_RECORD}"
    if known.identity != identity:
        return f"{store} is the file store of another database"
    return ""


def _write(conn: Connection, store: Store, mark: _Mark) -> None:
    numbers = fetch_mapping(conn, SQL["numbers"])
    withdrawn = Withdrawn(
        [WithdrawnSignature(*row) for row in conn.execute(SQL["revocations"]).fetchall()],
        fetch_values(conn, str, SQL["keys"]),
        fetch_values(conn, str, SQL["clients"]),
        [WithdrawnHost(*row) for row in conn.execute(SQL["hosts"]).fetchall()],
    )
    text = msgspec.json.encode(withdrawn).decode() + "\n"
    if store.read_note(_WITHDRAWN) != text.encode():  # it seldom changes, and may be large
        store.write_note(_WITHDRAWN, text)
    record = StoreRecord(mark.identity, mark.revision, mark.epoch, numbers)
    store.write_note(_RECORD, msgspec.json.encode(record).decode() + "\n")


# ------------------------------------------------------------------- after a loss of the past


def read_record(store: Store) -> StoreRecord | None:
    """What a store knows of its database; None without a record.  Raises StoreMismatch."""
    return _read(store, _RECORD, StoreRecord)


def read_withdrawn(store: Store) -> Withdrawn:
    """What a store knows to be withdrawn.  Raises StoreMismatch."""
    return _read(store, _WITHDRAWN, Withdrawn) or Withdrawn()


def _read(store: Store, name: str, shape: type[S]) -> S | None:
    text = store.read_note(name)
    try:
        return None if text is None else msgspec.json.decode(text, type=shape)
    except msgspec.DecodeError as error:
        raise StoreMismatch(
            f"{store}/{name} is damaged: {error}; remove it, and try again"
        ) from None


def part(store: Store) -> None:
    """Make a bucket the store of no database: the next one that starts with it joins it."""
    store.remove_note(_RECORD)


def begin_anew(conn: Connection, store: Store) -> bool:
    """Make a database that was restored from a backup another one than the backup's.

    It gets a store that it has not met yet.  `store` is what was there before, if anything: what
    it knows of this database counts.  Returns whether it was this database's.
    """
    mark, known = fetch_only(conn, _Mark, SQL["mark"]), read_record(store)
    is_own = known is not None and known.identity == mark.identity
    if is_own:
        _withdraw(conn, read_withdrawn(store))
    _renew(conn, known if is_own else None)
    conn.execute(SQL["new_store"])
    conn.execute(SQL["set_revision"], {"revision": 0})
    return is_own


def _go_on(conn: Connection, store: Store, mark: _Mark, known: StoreRecord | None) -> None:
    _withdraw(conn, read_withdrawn(store))
    _renew(conn, known)
    revision = max(mark.revision, known.revision if known else 0)
    conn.execute(SQL["set_revision"], {"revision": revision})


def _renew(conn: Connection, known: StoreRecord | None) -> None:
    """Begin a new epoch: a number that rises, and 40 random bits; numbers of rows jump.

    Whoever knows an epoch tells such a database from the one that was lost, and from another that
    was made of the same backup.  None of them gives a number that another gave.
    """
    values = {"known": known.epoch if known else 0, "chance": secrets.randbits(40)}
    conn.execute(SQL["new_epoch"], values)
    conn.execute(SQL["new_database"])
    numbers = known.numbers if known else {}
    for name, type_ in fetch(conn, _Sequence, SQL["sequences"]):
        jump = _JUMP.get(type_, _JUMP["integer"])
        conn.execute(SQL["jump"], {"sequence": name, "jump": jump, "known": numbers.get(name, 0)})


def _withdraw(conn: Connection, withdrawn: Withdrawn) -> None:
    """Revoke and ban again what a state of the database that was lost had revoked and banned."""
    revocations = encode(msgspec.to_builtins(withdrawn.revocations))
    for subject in fetch_values(conn, bytes, SQL["revoke_again"], {"revocations": revocations}):
        conn.execute(SIGNING["revoke_key"], {"subject": subject})
        conn.execute(SIGNING["revoke_bots"], {"subject": subject})
    values = {
        "keys": withdrawn.keys,
        "clients": withdrawn.clients,
        "hosts": encode(msgspec.to_builtins(withdrawn.hosts)),
    }
    for statement in ("revoke_keys_again", "revoke_clients_again", "ban_again", "remember"):
        conn.execute(SQL[statement], values)
