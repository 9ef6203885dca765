"""What hosts report: leases end, outputs are kept, and the transitioner is woken."""

from __future__ import annotations

import base64
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from gridbot_client.protocol.messages import Output, ReplicaId, Report
from gridbot_server.dispatch.batch import SQL, Exchange
from gridbot_server.storage.counters import NO_GRID, Counters, FailureReason
from gridbot_server.storage.db import Connection
from gridbot_server.storage.moves import LATE, REPORTED
from gridbot_server.storage.moves import SQL as MOVES
from gridbot_server.storage.rows import encode, fetch
from gridbot_server.validators.digests import digest

# Whose report of which replica: a stranger's report of the same replica is another one.
ReportKey = tuple[ReplicaId, int]
Upload = tuple[ReplicaId, str, str]  # replica, name, hash


class _Of(NamedTuple):
    """Of which replica a client has reported."""

    bot: int
    seq: int
    replica: int
    client: int

    @property
    def key(self) -> ReportKey:
        """Of the report."""
        return ReplicaId(self.bot, self.seq, self.replica), self.client


class _Uploaded(NamedTuple):
    """An output that lies in the file store."""

    bot: int
    seq: int
    replica: int
    name: str
    sha256: str  # in hex, as the report gives it


def settle_reports(
    conn: Connection, exchanges: Sequence[Exchange], counters: Counters
) -> Collection[ReplicaId]:
    """End the leases that clients report, keep their outputs, and wake the transitioner.

    Returns of which replicas leases have ended.
    """
    missing = _missing_uploads(conn, exchanges)
    reports: dict[ReportKey, Report] = {}
    for exchange in exchanges:
        client = exchange.client.id
        for report in exchange.request.reports:
            if missing and not missing.isdisjoint(_uploads(report)):
                exchange.reupload.append(report.id)
            else:
                reports[report.id, client] = report
    if not reports:
        return ()
    # In the transitioner's order, so that they do not wait for each other's leases in a circle.
    rows = [_report_row(client, reports[name, client]) for name, client in sorted(reports)]
    grids = {exchange.client.id: exchange.client.grid or NO_GRID for exchange in exchanges}
    values = {"reports": encode(rows), **REPORTED}
    refused = {of.key for of in fetch(conn, _Of, MOVES["end_leases"], values)}
    ended = {key: reports[key] for key in reports.keys() - refused} if refused else reports
    for bot, count in Counter(name.bot for name, _ in ended).items():
        counters.add(bot, "back", count)
    _note(ended, grids, counters)
    if refused:
        late = {key: reports[key] for key in _take_late(conn, reports, refused)}
        for name, client in late:
            counters.note(name.bot, grids[client], "late")
        _note(late, grids, counters)
    return [name for name, _ in ended]


def _note(
    reports: Mapping[ReportKey, Report], grids: Mapping[int, str], counters: Counters
) -> None:
    """Let the history know what reports that count have said; `grids` are of their clients."""
    seconds: defaultdict[tuple[int, str, bool], list[float]] = defaultdict(list)
    for (name, client), report in reports.items():
        bot, grid, succeeded = name.bot, grids[client], report.how == "success"
        seconds[bot, grid, succeeded].append(report.cpu_seconds)
        if not succeeded:
            counters.failures[FailureReason(bot, grid, report.reason)] += 1
    for (bot, grid, succeeded), spent in seconds.items():
        counters.note(bot, grid, "succeeded" if succeeded else "errors", len(spent))
        counters.note(bot, grid, "cpu_seconds", sum(spent))


def _take_late(
    conn: Connection, reports: Mapping[ReportKey, Report], refused: Set[ReportKey]
) -> list[ReportKey]:
    """Take successes that found no lease but an expired replica; return whose reports of which."""
    rows = [
        _report_row(client, reports[name, client])
        for name, client in sorted(refused)
        if reports[name, client].how == "success"
    ]
    if not rows:
        return []
    taken = fetch(conn, _Of, MOVES["take_late"], {"reports": encode(rows), **LATE})
    return [of.key for of in taken]


def _uploads(report: Report) -> Iterator[Upload]:
    """The files that a report relies on having been uploaded."""
    for output in report.outputs:
        if output.content is None:
            yield report.id, output.name, output.sha256


def _missing_uploads(conn: Connection, exchanges: Sequence[Exchange]) -> set[Upload]:
    """Return those of the reported uploads that are not here."""
    wanted = {
        upload
        for exchange in exchanges
        for report in exchange.request.reports
        for upload in _uploads(report)
    }
    if not wanted:
        return wanted
    rows = [{**id_._asdict(), "name": name, "sha256": sha256} for id_, name, sha256 in wanted]
    arrived = fetch(conn, _Uploaded, SQL["uploaded"], {"outputs": encode(rows)})
    return wanted - {
        (ReplicaId(file.bot, file.seq, file.replica), file.name, file.sha256) for file in arrived
    }


def _report_row(client: int, report: Report) -> dict[str, Any]:
    bot, seq, replica = report.id
    return {
        "client": client,
        "bot": bot,
        "seq": seq,
        "replica": replica,
        "how": report.how,
        "reason": report.reason,
        "exit_code": report.exit_code,
        "cpu_seconds": report.cpu_seconds,
        "wall_seconds": report.wall_seconds,
        "digest": digest(report.outputs, report.exit_code if report.how == "success" else 0),
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
