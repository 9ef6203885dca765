"""One transaction for all host requests that queued while the last one was committed.

The order is fixed: who asks; what they report; what they hold; what they get; counters.
Every write is guarded, so that a repeated or forged request changes nothing twice.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, NamedTuple

import orjson

from gridbot_client.protocol import Output, ReplicaId, Report, WorkRequest
from gridbot_server import sql
from gridbot_server.db import Connection

SQL = sql.load("dispatch.sql")


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks, as the database knows it."""

    id: int
    host: int
    owner: int
    owner_name: str
    accepts: Sequence[int]
    grid: str | None
    dedicated: bool
    venue: str
    seqno: int
    last_key: str
    error_rate: float
    mean_turnaround: float | None
    jobs_today: int
    recent_cpu: float

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
            "JobsToday": self.jobs_today,
            "RecentCpuTime": self.recent_cpu,
        }


@dataclass(slots=True)
class Exchange:
    """One request on its way through the batch, and what it comes to."""

    client: Client
    request: WorkRequest
    reupload: list[ReplicaId] = field(default_factory=list)
    abort: list[ReplicaId] = field(default_factory=list)
    resend: dict[ReplicaId, float] = field(default_factory=dict)  # seconds left
    running: int = 0  # leases of the client, once its reports are taken

    @property
    def is_new(self) -> bool:
        """Whether work may be given: not a repeat, nor the voice of a copied client."""
        return self.request.seqno > self.client.seqno


@dataclass(slots=True)
class Counters:
    """Changes of `bot_stat` in this transaction."""

    values: Counter[tuple[int, str]] = field(default_factory=Counter)

    def add(self, bot: int, name: str, value: int = 1) -> None:
        """Count something of a BOT."""
        self.values[bot, name] += value

    def write(self, conn: Connection, writer: str) -> None:
        """Add them to the database, in one order for all writers."""
        rows = [
            {"bot": bot, "name": name, "value": value}
            for (bot, name), value in sorted(self.values.items())
        ]
        if rows:
            conn.execute(SQL["count"], {"writer": writer, "counters": encode(rows)})


def encode(rows: object) -> str:
    """Rows as the JSON that `json_to_recordset` reads: the cheapest way into PostgreSQL."""
    return orjson.dumps(rows).decode()


def find_clients(conn: Connection, requests: Mapping[bytes, WorkRequest]) -> dict[bytes, Client]:
    """Return who makes these requests, by the hashes of their tokens, and note the requests.

    A token that is unknown or revoked has no client.
    """
    rows = [
        {"hash": token_hash.hex(), "seqno": request.seqno, "key": request.key}
        for token_hash, request in requests.items()
    ]
    found = conn.execute(SQL["clients"], {"requests": encode(rows)}).fetchall()
    return {row[0]: Client(*row[1:]) for row in found}


# Whose report of which replica: a stranger's report of the same replica is another one.
ReportKey = tuple[ReplicaId, int]


def settle_reports(conn: Connection, exchanges: Sequence[Exchange], counters: Counters) -> None:
    """End the leases that clients report, keep their outputs, and wake the transitioner."""
    arrived = _arrived_uploads(conn, exchanges)
    reports: dict[ReportKey, Report] = {}
    for exchange in exchanges:
        for report in exchange.request.reports:
            if all(upload in arrived for upload in _uploads(report)):
                reports[report.id, exchange.client.id] = report
            else:
                exchange.reupload.append(report.id)
    if not reports:
        return
    # In the transitioner's order, so that they do not wait for each other's leases in a circle.
    rows = [_report_row(client, reports[name, client]) for name, client in sorted(reports)]
    gone = conn.execute(SQL["end_leases"], {"reports": encode(rows)}).fetchall()
    ended = {(ReplicaId(bot, seq, replica), client) for bot, seq, replica, client in gone}
    for bot, *_ in gone:
        counters.add(bot, "back")
    _take_late(conn, reports, ended)


def _take_late(
    conn: Connection, reports: Mapping[ReportKey, Report], ended: Set[ReportKey]
) -> None:
    """Take successes that found no lease but an expired replica."""
    rows = [
        _report_row(client, reports[name, client])
        for name, client in sorted(reports.keys() - ended)
        if reports[name, client].how == "success"
    ]
    if rows:
        conn.execute(SQL["take_late"], {"reports": encode(rows)})


def _uploads(report: Report) -> list[tuple[ReplicaId, str, str]]:
    """Which files a report relies on having been uploaded: replica, name, hash."""
    return [
        (report.id, output.name, output.sha256)
        for output in report.outputs
        if output.content is None
    ]


def _arrived_uploads(
    conn: Connection, exchanges: Sequence[Exchange]
) -> set[tuple[ReplicaId, str, str]]:
    """Return those of the reported uploads that are here."""
    wanted = [
        upload
        for exchange in exchanges
        for report in exchange.request.reports
        for upload in _uploads(report)
    ]
    if not wanted:
        return set()
    rows = [{**_row(id_), "name": name, "sha256": sha256} for id_, name, sha256 in wanted]
    return {
        (ReplicaId(bot, seq, replica), name, sha256)
        for bot, seq, replica, name, sha256 in conn.execute(
            SQL["uploaded"], {"outputs": encode(rows)}
        )
    }


def _row(name: ReplicaId) -> dict[str, int]:
    bot, seq, replica = name
    return {"bot": bot, "seq": seq, "replica": replica}


def digest(outputs: Iterable[Output]) -> str:
    """Return what an exact comparison compares: a hash over names and contents, in hex."""
    lines = sorted(f"{output.name}\0{output.sha256}\n" for output in outputs)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _report_row(client: int, report: Report) -> dict[str, Any]:
    return {
        "client": client,
        "bot": report.id.bot,
        "seq": report.id.seq,
        "replica": report.id.replica,
        "how": report.how,
        "reason": report.reason,
        "exit_code": report.exit_code,
        "cpu_seconds": report.cpu_seconds,
        "wall_seconds": report.wall_seconds,
        "digest": digest(report.outputs),
        "stdout": report.stdout,
        "stderr": report.stderr,
        "outputs": [
            _output_row(output, output.content)
            for output in report.outputs
            if output.content is not None
        ],
    }


def _output_row(output: Output, content: bytes) -> dict[str, Any]:
    return {
        "name": output.name,
        "sha256": output.sha256,
        "size": output.size,
        "content": base64.b64encode(content).decode(),
    }


def compare_holdings(conn: Connection, exchanges: Sequence[Exchange]) -> None:
    """Find leases that a client does not know of, and replicas it should stop.

    A lease that is missing from `holding` was lost with a reply, and is sent again.
    """
    of_client = {exchange.client.id: exchange for exchange in exchanges}
    held = {exchange.client.id: set(exchange.request.holding) for exchange in exchanges}
    leases = conn.execute(SQL["leases"], {"clients": list(of_client)}).fetchall()
    for client, bot, seq, replica, seconds in leases:
        exchange, name = of_client[client], ReplicaId(bot, seq, replica)
        exchange.running += 1
        if name in held[client]:
            held[client].remove(name)
        elif name not in exchange.reupload:
            exchange.resend[name] = max(seconds, 0.0)
    _find_aborts(conn, of_client, held)


def _find_aborts(
    conn: Connection, of_client: Mapping[int, Exchange], unleased: Mapping[int, set[ReplicaId]]
) -> None:
    names = sorted(set().union(*unleased.values()))
    if not names:
        return
    listed = encode([_row(name) for name in names])
    unwanted = {ReplicaId(*row) for row in conn.execute(SQL["not_wanted"], {"held": listed})}
    for client, held in unleased.items():
        of_client[client].abort += sorted(held & unwanted)


class NewLease(NamedTuple):
    """A replica about to be sent."""

    id: ReplicaId
    round: int
    why: str
    exchange: Exchange
    deadline_seconds: float
    distinct_owners: bool


def add_leases(
    conn: Connection, leases: Sequence[NewLease], with_quorum: set[int], counters: Counters
) -> set[ReplicaId]:
    """Insert the leases that may be; return those, and count them.

    A further copy must still wait in `requeue` and suit the host; a first copy must never have
    been sent.  What is not returned was stale: a copy of it exists elsewhere.
    """
    copies = [lease for lease in leases if lease.why != "first"]
    kept = {lease.id for lease in leases if lease.why == "first"} | _take_copies(
        conn, copies, counters
    )
    if not kept:
        return set()
    rows = [_lease_row(lease) for lease in leases if lease.id in kept]
    inserted = conn.execute(SQL["add_leases"], {"leases": encode(rows)}).fetchall()
    names = [_row(name) for name in kept]
    removed = conn.execute(SQL["unlease_ended"], {"leases": encode(names)}).fetchall()
    added = set(starmap(ReplicaId, inserted)).difference(starmap(ReplicaId, removed))
    sent = [lease for lease in leases if lease.id in added]
    for lease in sent:
        counters.add(lease.id.bot, f"sent_{lease.why}")
    firsts = [lease for lease in sent if lease.why == "first"]
    _add_quorum_copies(conn, firsts, with_quorum, counters)
    return added


def _take_copies(
    conn: Connection, copies: Sequence[NewLease], counters: Counters
) -> set[ReplicaId]:
    if not copies:
        return set()
    rows = [
        {
            **_row(lease.id),
            "host": lease.exchange.client.host,
            "owner": lease.exchange.client.owner,
            "distinct_owners": lease.distinct_owners,
        }
        for lease in copies
    ]
    hosts = sorted({lease.exchange.client.host for lease in copies})
    conn.execute(SQL["lock_hosts"], {"hosts": hosts})
    taken = {ReplicaId(*row) for row in conn.execute(SQL["take_copies"], {"copies": encode(rows)})}
    for name in taken:
        counters.add(name.bot, "unqueued")
    refused = [_row(lease.id) for lease in copies if lease.id not in taken]
    if refused:
        conn.execute(SQL["release_copies"], {"copies": encode(refused)})
    return taken


def _lease_row(lease: NewLease) -> dict[str, Any]:
    client = lease.exchange.client
    return {
        "bot": lease.id.bot,
        "seq": lease.id.seq,
        "replica": lease.id.replica,
        "round": lease.round,
        "why": lease.why,
        "client": client.id,
        "host": client.host,
        "owner": client.owner,
        "deadline_seconds": lease.deadline_seconds,
        "request_key": lease.exchange.request.key,
    }


def _add_quorum_copies(
    conn: Connection, firsts: Sequence[NewLease], with_quorum: set[int], counters: Counters
) -> None:
    """Queue the other copies that a quorum needs, once the first is on its way."""
    rows = [
        {"bot": lease.id.bot, "seq": lease.id.seq, "round": lease.round}
        for lease in firsts
        if lease.id.bot in with_quorum
    ]
    if rows:
        for (bot,) in conn.execute(SQL["add_quorum_copies"], {"leases": encode(rows)}):
            counters.add(bot, "queued")


def describe_hosts(conn: Connection, ads: Mapping[int, Mapping[str, Any]]) -> None:
    """Keep how hosts describe themselves, when that has changed."""
    if ads:
        rows = [{"id": host, "ad": ad} for host, ad in sorted(ads.items())]
        conn.execute(SQL["describe_hosts"], {"hosts": encode(rows)})


def read_jobs(
    conn: Connection, jobs: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], tuple[str, str]]:
    """Return arguments and inputs, both as JSON text, of jobs whose slot does not hold them."""
    rows = [{"bot": bot, "seq": seq} for bot, seq in set(jobs)]
    if not rows:
        return {}
    return {
        (bot, seq): (args, inputs)
        for bot, seq, args, inputs in conn.execute(SQL["jobs"], {"jobs": encode(rows)})
    }
