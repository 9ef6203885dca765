"""What hosts report: leases end, outputs are kept, and the transitioner is woken."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence, Set
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


class _Ended(NamedTuple):
    """A replica that a report has ended."""

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


def settle_reports(conn: Connection, exchanges: Sequence[Exchange], counters: Counters) -> None:
    """End the leases that clients report, keep their outputs, and wake the transitioner."""
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
        return
    # In the transitioner's order, so that they do not wait for each other's leases in a circle.
    rows = [_report_row(client, reports[name, client]) for name, client in sorted(reports)]
    grids = {exchange.client.id: exchange.client.grid or NO_GRID for exchange in exchanges}
    gone = fetch(conn, _Ended, MOVES["end_leases"], {"reports": encode(rows), **REPORTED})
    for end in gone:
        counters.add(end.bot, "back")
        _note(reports[end.key], grids[end.client], counters)
    if len(gone) < len(reports):
        for end in _take_late(conn, reports, {end.key for end in gone}):
            counters.note(end.bot, grids[end.client], "late")
            _note(reports[end.key], grids[end.client], counters)


def _note(report: Report, grid: str, counters: Counters) -> None:
    """Let the history know what a report that counts has said."""
    bot, succeeded = report.id.bot, report.how == "success"
    counters.note(bot, grid, "succeeded" if succeeded else "errors")
    counters.note(bot, grid, "cpu_seconds", report.cpu_seconds or 0.0)
    if not succeeded:
        counters.failures[FailureReason(bot, grid, report.reason)] += 1


def _take_late(
    conn: Connection, reports: Mapping[ReportKey, Report], ended: Set[ReportKey]
) -> list[_Ended]:
    """Take successes that found no lease but an expired replica; return those."""
    rows = [
        _report_row(client, reports[name, client])
        for name, client in sorted(reports.keys() - ended)
        if reports[name, client].how == "success"
    ]
    if not rows:
        return []
    return fetch(conn, _Ended, MOVES["take_late"], {"reports": encode(rows), **LATE})


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
