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
from typing import IO, Any

from gridbot_server.credit import records
from gridbot_server.credit.records import Credit, HostRecord, Totals
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.disk import make_directory

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


def run_once(conn: Connection, directory: Path, period: float, now: float) -> int:
    """Write the files unless those that are there are younger than `period`; return how many."""
    written = directory / TABLES
    # One from the future is due, too: the clock was set back.
    if written.exists() and 0 <= now - written.stat().st_mtime < period:
        return 0
    write(conn, directory, now)
    return len(FILES)


def write(conn: Connection, directory: Path, now: float) -> None:
    """Write all files from one snapshot, in memory that does not grow with them."""
    make_directory(directory)
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        secret = bytes.fromhex(_row(conn, "export_secret")[0])
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
        totals = Totals(*_row(conn, "export_totals"))
    with _replaced(directory / TABLES) as file:
        _document(file, "tables", [totals.record(now)])
    os.utime(directory / TABLES, (now, now))


def _document(file: IO[bytes] | gzip.GzipFile, tag: str, texts: Iterable[str]) -> None:
    """Write an XML document in ASCII, which is the same in every encoding that readers expect."""
    file.write(f"{_HEADER}<{tag}>\n".encode())
    for text in texts:
        file.write(text.encode("ascii", "xmlcharrefreplace"))
    file.write(f"</{tag}>\n".encode())


def _users(conn: Connection, secret: bytes) -> Iterator[str]:
    for id, name, created_at, *credit, team in _rows(conn, "export_users"):
        yield records.user(id, name, created_at, Credit(*credit), _cpid(secret, "user", id), team)


def _teams(conn: Connection) -> Iterator[str]:
    for id, name, founder, founder_name, created_at, *credit in _rows(conn, "export_teams"):
        named = None if founder is None else (founder, founder_name)
        yield records.team(id, name, named, created_at, Credit(*credit))


def _hosts(conn: Connection, secret: bytes) -> Iterator[str]:
    for id, user, ad, created_at, seen_at, turnaround, *credit in _rows(conn, "export_hosts"):
        cpid = None if user is None else _cpid(secret, "host", id)
        yield HostRecord(
            id, user, cpid, ad, created_at, seen_at, turnaround, Credit(*credit)
        ).record()


def _row(conn: Connection, query: str) -> tuple[Any, ...]:
    row = conn.execute(SQL[query]).fetchone()
    assert row is not None, f"{query}: what setup makes is not there"
    return row


def _rows(conn: Connection, query: str) -> Iterator[tuple[Any, ...]]:
    with conn.cursor(name=query) as cursor:
        cursor.itersize = _ROWS
        yield from cursor.execute(SQL[query])


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
