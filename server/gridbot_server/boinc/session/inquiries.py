"""What the database knows of those who make scheduler requests: few statements for many of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gridbot_client.protocol.messages import Output, ReplicaId
from gridbot_server.boinc.session import hosts, project
from gridbot_server.boinc.session.hosts import KnownCaller
from gridbot_server.boinc.session.project import Project
from gridbot_server.boinc.session.reports import Stored
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode, fetch

SQL = sql.load("boinc.sql")

Uploads = Mapping[ReplicaId, Mapping[int, Stored]]


@dataclass(frozen=True, slots=True)
class Inquiry:
    """Who asks, by key and number, and of which replicas it says that it uploaded files."""

    authenticator: str
    hostid: int
    uploaded: Sequence[ReplicaId] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """The project as it is now, the callers in the order of their inquiries, and their files."""

    project: Project
    callers: Sequence[KnownCaller]
    uploads: Uploads


def inquire(conn: Connection, known: Project, inquiries: Sequence[Inquiry]) -> Findings:
    """Ask for all of them; `known` is the project as it was when somebody asked last."""
    return Findings(
        project.current(conn, known),
        hosts.find(conn, [(item.authenticator, item.hostid) for item in inquiries]),
        _uploads(conn, {id for item in inquiries for id in item.uploaded}),
    )


class _UploadRow(NamedTuple):
    """An uploaded file and, unless `output` is None, an output in it."""

    bot: int
    seq: int
    replica: int
    number: int
    md5: str
    size: int
    output: str | None  # its name
    output_sha256: str
    output_size: int


def _uploads(conn: Connection, replicas: Iterable[ReplicaId]) -> Uploads:
    """The files that were uploaded for these replicas, by number, and the outputs in each."""
    found: dict[ReplicaId, dict[int, Stored]] = {}
    if listed := [id._asdict() for id in replicas]:
        for row in fetch(conn, _UploadRow, SQL["uploads"], {"replicas": encode(listed)}):
            files = found.setdefault(ReplicaId(row.bot, row.seq, row.replica), {})
            stored = files.setdefault(row.number, Stored(row.md5, row.size, []))
            if row.output is not None:
                output = Output(row.output, row.output_sha256, row.output_size)
                stored.outputs.append(output)
    return found
