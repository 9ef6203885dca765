"""Writes the statistics files that BOINC's statistics sites read: users, teams, hosts, totals.

Each file is replaced at once, `tables.xml` at last: whoever sees its time sees files that are as
new.  Only who agreed is named; hosts of others are there without what leads to their owner.
"""

from __future__ import annotations

import gzip
import hmac
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from gridbot_server.credit import records
from gridbot_server.credit.records import Credit, HostRecord, Totals
from gridbot_server.storage import sql
from gridbot_server.storage.db import PostgresConnection
from gridbot_server.storage.disk import make_directory
from gridbot_server.storage.rows import fetch_only, fetch_value, stream

SQL = sql.load("credit.sql")

TABLES = "tables.xml"
# What there is, and its type.
FILES = {
    TABLES: "text/xml",
    "user.gz": "application/gzip",
    "team.gz": "application/gzip",
    "host.gz": "application/gzip",
}

_ROWS = 2000  # fetched at a time
_HEADER = '<?xml version="1.0" encoding="iso-8859-1"?>\n'


def run_once(conn: PostgresConnection, directory: Path, period: float, now: float) -> int:
    """Write the files unless those that are there are younger than `period`; return how many."""
    written = directory / TABLES
    # One from the future is due, too: the clock was set back.
    if written.exists() and 0 <= now - written.stat().st_mtime < period:
        return 0
    write(conn, directory, now)
    return len(FILES)


def write(conn: PostgresConnection, directory: Path, now: float) -> None:
    """Write all files from one snapshot, in memory that does not grow with them."""
    make_directory(directory)
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        secret = _secret(conn)
        for name, texts in (
            ("user", _users(conn, secret)),
            ("team", _teams(conn)),
            ("host", _hosts(conn, secret)),
        ):
            with (
                _replaced(directory / f"{name}.gz") as file,
                gzip.GzipFile("", "wb", 6, file, now) as packed,
            ):
                _document(packed, f"{name}s", texts)
        totals = fetch_only(conn, Totals, SQL["export_totals"])
    with _replaced(directory / TABLES) as file:
        _document(file, "tables", [totals.record(now)])
    os.utime(directory / TABLES, (now, now))


def _document(file: IO[bytes] | gzip.GzipFile, tag: str, texts: Iterable[str]) -> None:
    """Write an XML document in ASCII, which is the same in every encoding that readers expect."""
    file.write(f"{_HEADER}<{tag}>\n".encode())
    for text in texts:
        file.write(text.encode("ascii", "xmlcharrefreplace"))
    file.write(f"</{tag}>\n".encode())


class _User(NamedTuple):
    """A user who agreed to be named."""

    id: int
    name: str
    created_at: int
    total: float
    average: float
    averaged_at: float
    team: int | None


class _Team(NamedTuple):
    """A team; its founder only if that one agreed to be named."""

    id: int
    name: str
    founder: int | None
    founder_name: str
    created_at: int
    total: float
    average: float
    averaged_at: float


class _Host(NamedTuple):
    """A host; its owner only if that one agreed to be named."""

    id: int
    owner: int | None
    ad: dict[str, Any]
    created_at: int
    seen_at: int
    turnaround_seconds: float | None
    total: float
    average: float
    averaged_at: float


def _users(conn: PostgresConnection, secret: bytes) -> Iterator[str]:
    for user in stream(conn, _User, "export_users", SQL["export_users"], _ROWS):
        credit, cpid = _credit(user), _cpid(secret, "user", user.id)
        yield records.user(user.id, user.name, user.created_at, credit, cpid, user.team)


def _teams(conn: PostgresConnection) -> Iterator[str]:
    for team in stream(conn, _Team, "export_teams", SQL["export_teams"], _ROWS):
        named = None if team.founder is None else (team.founder, team.founder_name)
        yield records.team(team.id, team.name, named, team.created_at, _credit(team))


def _hosts(conn: PostgresConnection, secret: bytes) -> Iterator[str]:
    for host in stream(conn, _Host, "export_hosts", SQL["export_hosts"], _ROWS):
        yield HostRecord(
            id=host.id,
            user=host.owner,
            cpid=None if host.owner is None else _cpid(secret, "host", host.id),
            ad=host.ad,
            created_at=host.created_at,
            seen_at=host.seen_at,
            turnaround_seconds=host.turnaround_seconds,
            credit=_credit(host),
        ).record()


def _credit(row: _User | _Team | _Host) -> Credit:
    return Credit(row.total, row.average, row.averaged_at)


def _secret(conn: PostgresConnection) -> bytes:
    secret = fetch_value(conn, str, SQL["export_secret"])
    assert secret is not None, "the first start made it"
    return bytes.fromhex(secret)


def _cpid(secret: bytes, kind: str, id: int) -> str:
    """A public name that stays the same, and from which no secret one can be told."""
    return hmac.digest(secret, f"public {kind} {id}".encode(), "sha256").hex()[:32]


@contextmanager
def _replaced(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of another one once it is written whole."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    fresh.chmod(0o644)
    fresh.replace(path)
