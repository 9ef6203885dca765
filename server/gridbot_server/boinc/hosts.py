"""Which client of ours a scheduler request comes from: found again, or made at first contact.

A client forgets its number when its user resets or attaches it anew, and two clients have one
number when a data directory was copied.  BOINC's own server decides both by the same signs.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any

from gridbot_server import keys, sql
from gridbot_server.boinc.machine import Machine
from gridbot_server.boinc.request import SchedulerRequest
from gridbot_server.db import Connection

SQL = sql.load("boinc.sql")


@dataclass(frozen=True, slots=True)
class Account:
    """Whose key a client was attached with."""

    owner: int
    name: str
    created_at: int  # s since 1970
    grid: str | None


@dataclass(frozen=True, slots=True)
class Identity:
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
    identity: Identity
    is_welcome: bool  # neither revoked nor expired


def find_account(conn: Connection, authenticator: str) -> Account | None:
    """The account of a key; None for a key that is unknown, expired or revoked."""
    values = {"hash": keys.token_hash(authenticator)}
    row = conn.execute(SQL["account"], values).fetchone()
    return Account(*row) if row else None


def identity_of(machine: Machine) -> Identity:
    """What a client says of its machine, as far as it tells machines apart."""
    system = (machine.cpu_vendor, machine.cpu_model, machine.os_name, machine.os_version)
    here = (machine.domain_name, machine.ip_addr, machine.memory_bytes)
    return Identity(
        machine.host_cpid, _digest(machine.cpus, *system), _digest(*here, machine.cpus, *system)
    )


def request_number(request: SchedulerRequest) -> int:
    """The number by which requests of one client are ordered.

    A client counts from 0 twice: without a host id, and again once it was given one.
    """
    return 0 if request.is_first else request.rpc_seqno + 1


def find_or_add(conn: Connection, account: Account, request: SchedulerRequest) -> KnownClient:
    """The client that a request comes from.

    A number that is smaller than before comes from a copy of a client: that is another one.
    """
    identity = identity_of(request.machine)
    found = None if request.is_first else _client(conn, account, request.hostid)
    if found is not None and found.is_welcome and request_number(request) < found.seqno:
        return _add(conn, account, identity)
    if found is None:
        return _first_contact(conn, account, identity, request.client.allows_others)
    if found.identity != identity:
        conn.execute(SQL["change_identity"], {"client": found.id, **_values(account, identity)})
    return found


def _first_contact(
    conn: Connection, account: Account, identity: Identity, allows_others: bool
) -> KnownClient:
    values = {**_values(account, identity), "allows_others": allows_others}
    with conn.transaction():
        conn.execute(SQL["lock_cpid"], values)
        row = conn.execute(SQL["known_before"], values).fetchone()
        if row is None:
            return _add(conn, account, identity)
        # Its requests are counted from the beginning again.
        conn.execute(SQL["count_anew"], {"client": row[0]})
        conn.execute(SQL["change_identity"], {"client": row[0], **values})
        found = _client(conn, account, row[0])
    assert found is not None, "clients are never deleted"
    return found


def _add(conn: Connection, account: Account, identity: Identity) -> KnownClient:
    values = {
        **_values(account, identity),
        "identity": f"boinc:{secrets.token_hex(16)}",
        # No token hashes to it: nobody speaks for this client in another protocol.
        "hash": secrets.token_bytes(32),
        "grid": account.grid,
    }
    row = conn.execute(SQL["add_client"], values).fetchone()
    assert row is not None
    found = _client(conn, account, row[0])
    assert found is not None, "it was made right now"
    return found


def _client(conn: Connection, account: Account, client: int) -> KnownClient | None:
    values = {"client": client, "owner": account.owner}
    row = conn.execute(SQL["client"], values).fetchone()
    if row is None:
        return None
    id, hash, seqno, created_at, turnaround, cpid, machine, place, is_welcome = row
    identity = Identity(cpid, machine, place)
    return KnownClient(id, hash, seqno, created_at, turnaround, identity, is_welcome)


def _values(account: Account, identity: Identity) -> dict[str, Any]:
    return {
        "owner": account.owner,
        "cpid": identity.cpid,
        "machine": identity.machine,
        "place": identity.place,
    }


def _digest(*parts: str | int) -> bytes:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
