"""Replicas that are sent: their leases, and what that changes in the queue of further copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from operator import attrgetter
from typing import Any, NamedTuple

from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.dispatch.batch import SQL, Exchange
from gridbot_server.storage.counters import NO_GRID, Counters
from gridbot_server.storage.db import Connection
from gridbot_server.storage.moves import SQL as MOVES
from gridbot_server.storage.moves import unlease_ended
from gridbot_server.storage.rows import array, encode, fetch, fetch_values


class NewLease(NamedTuple):
    """A replica about to be sent."""

    id: ReplicaId
    round: int
    why: str
    exchange: Exchange
    deadline_seconds: float
    distinct_owners: bool
    body: bytes | None = None  # its assignment as the buffer held it
    is_bounded: bool = False  # it counts against the host's width
    kind: str | None = None  # of the host, if that binds the job
    more: int = 0  # copies to queue with a first one


def add_leases(conn: Connection, leases: Sequence[NewLease], counters: Counters) -> list[NewLease]:
    """Insert the leases that may be; return those, and count them.

    A further copy must still wait in `requeue` and suit the host; a first copy must never have
    been sent.  What is not returned was stale: a copy of it exists elsewhere.
    """
    copies = [lease for lease in leases if lease.why != "first"]
    if copies:
        taken = _take_copies(conn, copies, counters)
        leases = [lease for lease in leases if lease.why == "first" or lease.id in taken]
    if not leases:
        return []
    # In one order for all: who withholds jobs (`moves.py`) inserts leases of the same ones.
    rows = [_lease_row(lease) for lease in sorted(leases, key=attrgetter("id"))]
    refused = set(fetch(conn, ReplicaId, MOVES["add_leases"], {"leases": encode(rows)}))
    refused.update(unlease_ended(conn, [lease.id for lease in leases]))
    sent = [lease for lease in leases if lease.id not in refused] if refused else list(leases)
    numbers = Counter(
        (lease.id.bot, lease.why, lease.exchange.client.grid or NO_GRID) for lease in sent
    )
    for (bot, why, grid), count in numbers.items():
        counters.add(bot, f"sent_{why}", count)
        counters.note(bot, grid, "sent", count)
    _add_unjudged(conn, [lease for lease in sent if lease.is_bounded])
    kinds = [
        {**_name_row(lease.id), "kind": lease.kind} for lease in sent if lease.kind is not None
    ]
    if kinds:
        conn.execute(SQL["bind_kinds"], {"jobs": encode(kinds)})
    _add_quorum_copies(conn, sent, counters)
    return sent


def _add_unjudged(conn: Connection, bounded: Sequence[NewLease]) -> None:
    """Note replicas that count against a width until they are judged."""
    rows = [
        {
            **_name_row(lease.id),
            "host": lease.exchange.client.host,
            "crew": lease.exchange.client.crew,
        }
        for lease in bounded
    ]
    if rows:
        conn.execute(SQL["add_unjudged"], {"replicas": encode(rows)})


def _take_copies(
    conn: Connection, copies: Sequence[NewLease], counters: Counters
) -> Set[ReplicaId]:
    """Take copies out of the queue; return those that were there and suit their host."""
    rows = [
        {
            **_name_row(lease.id),
            "host": lease.exchange.client.host,
            "owner": lease.exchange.client.owner,
            "distinct_owners": lease.distinct_owners,
        }
        for lease in copies
    ]
    hosts = sorted({lease.exchange.client.host for lease in copies})
    conn.execute(SQL["lock_hosts"], {"hosts": array(hosts)})
    taken = set(fetch(conn, ReplicaId, MOVES["take_copies"], {"copies": encode(rows)}))
    for copy in taken:
        counters.add(copy.bot, "unqueued")
    release_copies(conn, [lease for lease in copies if lease.id not in taken])
    return taken


def release_copies(conn: Connection, refused: Sequence[NewLease]) -> None:
    """Let the feeder put in again what is still queued of leases that were not made."""
    if refused:
        names = encode([_name_row(lease.id) for lease in refused])
        conn.execute(SQL["release_copies"], {"copies": names})


def _name_row(name: ReplicaId) -> dict[str, int]:
    bot, seq, replica = name
    return {"bot": bot, "seq": seq, "replica": replica}


def _lease_row(lease: NewLease) -> dict[str, Any]:
    client = lease.exchange.client
    return {
        **_name_row(lease.id),
        "round": lease.round,
        "why": lease.why,
        "client": client.id,
        "host": client.host,
        "owner": client.owner,
        "deadline_seconds": lease.deadline_seconds,
        "request_key": lease.exchange.request.key,
    }


def _add_quorum_copies(conn: Connection, sent: Sequence[NewLease], counters: Counters) -> None:
    """Queue the other copies that a quorum or a check needs, once the first is on its way."""
    rows = [
        {"bot": lease.id.bot, "seq": lease.id.seq, "round": lease.round, "more": lease.more}
        for lease in sent
        if lease.why == "first" and lease.more
    ]
    if rows:
        for bot in fetch_values(conn, int, MOVES["add_quorum_copies"], {"leases": encode(rows)}):
            counters.add(bot, "queued")
