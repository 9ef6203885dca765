"""One transaction for all host requests that queued while the last one was committed.

The order is fixed: who asks; what they report; what they hold; what they get; counters.
Every write is guarded, so that a repeated or forged request changes nothing twice.  What is
reported is in `reports.py`, what they get in `leases.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gridbot_client.protocol.messages import ReplicaId, WorkRequest
from gridbot_server.matching.width import START
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import array, encode, fetch

SQL = sql.load("dispatch.sql")


class ClientRow(NamedTuple):
    """Who asks, as the database knows it."""

    hash: bytes  # of its token
    id: int
    host: int
    owner: int
    owner_name: str
    accepts: Sequence[int]
    trusts: Sequence[int]
    grid: str | None
    dedicated: bool
    venue: str
    seqno: int
    last_key: str
    error_rate: float
    mean_turnaround: float | None
    jobs_today: int
    recent_cpu: float
    width: float = START
    crew: str = ""  # who answers for its host: an owner, or a grid
    crew_width: float = START
    preferences_version: int = 0  # of its owner's

    @property
    def known_attributes(self) -> dict[str, Any]:
        """The host attributes that the server itself knows or measured."""
        return {
            "Owner": self.owner_name,
            "Grid": self.grid,
            "IsPilot": self.grid is not None,
            "IsDedicated": self.dedicated,
            "Venue": self.venue or None,
            "ErrorRate": round(self.error_rate, 6),
            "MeanTurnaround": self.mean_turnaround,
            "Width": int(min(self.width, self.crew_width)),
            "JobsToday": self.jobs_today,
            "RecentCpuTime": self.recent_cpu,
        }


class _Lease(NamedTuple):
    """A replica that a client holds."""

    client: int
    bot: int
    seq: int
    replica: int
    round: int
    seconds_left: float  # to its deadline


class LostLease(NamedTuple):
    """A lease whose reply was lost."""

    round: int
    seconds_left: float


@dataclass(slots=True)
class Exchange:
    """One request on its way through the batch, and what it comes to."""

    client: ClientRow
    request: WorkRequest
    was_parked: bool = False
    reupload: list[ReplicaId] = field(default_factory=list)
    abort: list[ReplicaId] = field(default_factory=list)
    resend: dict[ReplicaId, LostLease] = field(default_factory=dict)
    running: int = 0  # leases of the client, once its reports are taken
    of_bot: dict[int, int] = field(default_factory=dict)  # these, by BOT

    @property
    def is_new(self) -> bool:
        """Whether work may be given: not a repeat, nor the voice of a copied client.

        A parked request is served again while it is its client's last one.
        """
        if self.was_parked:
            return self.request.key == self.client.last_key
        return self.request.seqno > self.client.seqno


def find_clients(
    conn: Connection, requests: Mapping[bytes, WorkRequest], contact_seconds: float = 0.0
) -> dict[bytes, ClientRow]:
    """Return who makes these requests, by the hashes of their tokens, and note the requests.

    A client with work will ask again within `contact_seconds`.  A token that is unknown or revoked
    has no client.
    """
    rows = [
        {
            "hash": token_hash.hex(),
            "seqno": request.seqno,
            "key": request.key,
            # That of a client with work is parked no longer than it would rest.
            "contact": contact_seconds,
        }
        for token_hash, request in requests.items()
    ]
    found = fetch(conn, ClientRow, SQL["clients"], {"requests": encode(rows)})
    return {client.hash: client for client in found}


def compare_holdings(conn: Connection, exchanges: Sequence[Exchange]) -> None:
    """Find leases that a client does not know of, and replicas it should stop.

    A lease that is missing from `holding` was lost with a reply, and is sent again.
    """
    of_client = {exchange.client.id: exchange for exchange in exchanges}
    held = {exchange.client.id: set(exchange.request.holding) for exchange in exchanges}
    for lease in fetch(conn, _Lease, SQL["leases"], {"clients": array(of_client)}):
        exchange = of_client[lease.client]
        name = ReplicaId(lease.bot, lease.seq, lease.replica)
        exchange.running += 1
        exchange.of_bot[lease.bot] = exchange.of_bot.get(lease.bot, 0) + 1
        if name in held[lease.client]:
            held[lease.client].remove(name)
        elif name not in exchange.reupload:
            exchange.resend[name] = LostLease(lease.round, max(lease.seconds_left, 0.0))
    _find_aborts(conn, of_client, held)


def _find_aborts(
    conn: Connection, of_client: Mapping[int, Exchange], unleased: Mapping[int, set[ReplicaId]]
) -> None:
    names = sorted(set().union(*unleased.values()))
    if not names:
        return
    listed = encode([name._asdict() for name in names])
    unwanted = set(fetch(conn, ReplicaId, SQL["not_wanted"], {"held": listed}))
    for client, held in unleased.items():
        of_client[client].abort += sorted(held & unwanted)


def describe_hosts(conn: Connection, ads: Mapping[int, Mapping[str, Any]]) -> None:
    """Keep how hosts describe themselves, when that has changed."""
    if ads:
        rows = [{"id": host, "ad": ad} for host, ad in sorted(ads.items())]
        conn.execute(SQL["describe_hosts"], {"hosts": encode(rows)})


def note_progress(conn: Connection, exchanges: Sequence[Exchange]) -> None:
    """Keep how far programs are that say so."""
    told = [
        {**item._asdict(), "client": exchange.client.id}
        for exchange in exchanges
        for item in exchange.request.progress
    ]
    if told:
        conn.execute(SQL["note_progress"], {"told": encode(told)})
