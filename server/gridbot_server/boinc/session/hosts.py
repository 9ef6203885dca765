"""Which client of ours a scheduler request comes from: found again, or made at first contact.

A client forgets its number when its user resets or attaches it anew, and two clients have one
number when a data directory was copied.  BOINC's own server decides both by the same signs.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from gridbot_server.boinc.protocol.machine import Machine
from gridbot_server.boinc.protocol.request import SchedulerRequest
from gridbot_server.errors import ServerBusy
from gridbot_server.overload.rate_limit import RateLimiter
from gridbot_server.signing import keys
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connect, Connection
from gridbot_server.storage.rows import encode, fetch, fetch_only_value, fetch_value

SQL = sql.load("boinc.sql")


@dataclass(frozen=True, slots=True)
class Account:
    """Whose key a client was attached with."""

    owner: int
    name: str
    created_at: int  # s since 1970
    is_self_made: bool  # from a client, by anybody
    total_credit: float
    recent_credit: float
    team: str
    preferences_version: int
    shares: tuple[tuple[str, float], ...]  # resource shares by venue


@dataclass(frozen=True, slots=True)
class MachineIdentity:
    """By what a client is known again: its own name, and hashes of its machine."""

    cpid: str
    machine: bytes
    place: bytes


@dataclass(frozen=True, slots=True)
class KnownClient:
    """A stock client as a client of ours; its hash is what the engine knows it by."""

    id: int
    hash: bytes
    seqno: int
    created_at: int  # s since 1970
    mean_turnaround: float | None
    identity: MachineIdentity
    is_welcome: bool  # neither revoked nor expired
    total_credit: float
    recent_credit: float
    venue: str
    banned: str | None  # why; None for a host that is not
    silent_seconds: float  # since it asked last
    marks: Sequence[str]  # of the files that it kept when it asked last


class KnownCaller(NamedTuple):
    """Who asks: no account for a key that is unknown, expired, revoked or not for clients.

    No client for a number that is none, or another owner's.
    """

    account: Account | None = None
    client: KnownClient | None = None


def find(conn: Connection, asked: Sequence[tuple[str, int]]) -> list[KnownCaller]:
    """Who uses these keys, and the numbers of clients that they name."""
    rows = [
        {"place": place, "hash": keys.token_hash(authenticator).hex(), "client": client}
        for place, (authenticator, client) in enumerate(asked)
    ]
    found = [KnownCaller()] * len(asked)
    for row in fetch(conn, _CallerRow, SQL["callers"], {"callers": encode(rows)}):
        found[row.number] = KnownCaller(_account(row), _client(row))
    return found


def find_account(conn: Connection, authenticator: str) -> Account | None:
    """The account of a key; None for one that is unknown, expired, revoked or not for clients."""
    return find(conn, [(authenticator, 0)])[0].account


class _CallerRow(NamedTuple):
    """An account and, unless `client` is None, a client of it with its host."""

    number: int  # in the order asked
    owner: int
    owner_name: str
    owner_since: int  # s since 1970
    is_self_made: bool
    owner_credit: float
    owner_recent_credit: float
    team: str
    preferences_version: int
    resource_shares: Mapping[str, float]
    client: int | None
    hash: bytes
    seqno: int
    client_since: int  # s since 1970
    mean_turnaround: float | None
    cpid: str
    machine: bytes
    place: bytes
    is_welcome: bool
    host_credit: float
    host_recent_credit: float
    venue: str
    banned: str | None
    silent_seconds: float
    marks: Sequence[str]


def _account(row: _CallerRow) -> Account:
    return Account(
        owner=row.owner,
        name=row.owner_name,
        created_at=row.owner_since,
        is_self_made=row.is_self_made,
        total_credit=row.owner_credit,
        recent_credit=row.owner_recent_credit,
        team=row.team,
        preferences_version=row.preferences_version,
        shares=tuple(row.resource_shares.items()),
    )


def _client(row: _CallerRow) -> KnownClient | None:
    if row.client is None:
        return None
    return KnownClient(
        id=row.client,
        hash=row.hash,
        seqno=row.seqno,
        created_at=row.client_since,
        mean_turnaround=row.mean_turnaround,
        identity=MachineIdentity(row.cpid, row.machine, row.place),
        is_welcome=row.is_welcome,
        total_credit=row.host_credit,
        recent_credit=row.host_recent_credit,
        venue=row.venue,
        banned=row.banned,
        silent_seconds=row.silent_seconds,
        marks=row.marks,
    )


@lru_cache(maxsize=512)
def identity_of(machine: Machine) -> MachineIdentity:
    """What a client says of its machine, as far as it tells machines apart."""
    system = (machine.cpu_vendor, machine.cpu_model, machine.os_name, machine.os_version)
    here = (machine.domain_name, machine.ip_addr, machine.memory_bytes)
    return MachineIdentity(
        machine.host_cpid, _digest(machine.cpus, *system), _digest(*here, machine.cpus, *system)
    )


def request_number(request: SchedulerRequest, client: int) -> int:
    """The number by which the requests of this client are ordered.

    A client counts from 0 when it is given a host id, the first one or another: what it counted
    before, as a copy of another client perhaps, says nothing.
    """
    return request.rpc_seqno + 1 if request.hostid == client else 0


def meet(
    connect: Connect,
    account: Account,
    found: KnownClient | None,
    request: SchedulerRequest,
    attachments: RateLimiter,
) -> KnownClient:
    """The client that a request comes from, `found` by its number or not.

    A number that is smaller than before comes from a copy of a client: that is another one.
    Raises ServerBusy for one too many new clients of an account that anybody could make.
    """
    identity = identity_of(request.machine)
    is_copy = (
        found is not None and found.is_welcome and (request_number(request, found.id) < found.seqno)
    )
    if found is not None and not is_copy and found.identity == identity:
        return found
    with connect() as conn:
        if found is None:
            others = request.client.allows_others
            client = _first_contact(conn, account, identity, others, attachments)
        elif is_copy:
            client = _add(conn, account, identity, attachments)
        else:
            client = _change(conn, account, identity, found.id)
        met = find(conn, [(request.authenticator, client)])[0].client
    assert met is not None, "clients are never deleted"
    return met


def _first_contact(
    conn: Connection,
    account: Account,
    identity: MachineIdentity,
    allows_others: bool,
    attachments: RateLimiter,
) -> int:
    values = {**_values(account, identity), "allows_others": allows_others}
    with conn.transaction():
        conn.execute(SQL["lock_cpid"], values)
        client = fetch_value(conn, int, SQL["known_before"], values)
        if client is None:
            return _add(conn, account, identity, attachments)
        # Its requests are counted from the beginning again.
        conn.execute(SQL["count_anew"], {"client": client})
        return _change(conn, account, identity, client)


def _change(conn: Connection, account: Account, identity: MachineIdentity, client: int) -> int:
    conn.execute(SQL["change_identity"], {"client": client, **_values(account, identity)})
    return client


def _add(
    conn: Connection, account: Account, identity: MachineIdentity, attachments: RateLimiter
) -> int:
    if account.is_self_made and not attachments.take(str(account.owner), time.monotonic()):
        raise ServerBusy("rate limit: too many new hosts of this account; try again later")
    values = {
        **_values(account, identity),
        "identity": f"boinc:{secrets.token_hex(16)}",
        # No token hashes to it: nobody speaks for this client in another protocol.
        "hash": secrets.token_bytes(32),
    }
    return fetch_only_value(conn, int, SQL["add_client"], values)


def _values(account: Account, identity: MachineIdentity) -> dict[str, Any]:
    return {
        "owner": account.owner,
        "cpid": identity.cpid,
        "machine": identity.machine,
        "place": identity.place,
    }


def _digest(*parts: str | int) -> bytes:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
