"""What made a file from what, and what is not to be reused because it depends on a file."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from gridbot_server.storage import sql
from gridbot_server.storage.db import PostgresConnection
from gridbot_server.storage.rows import JobId, encode, fetch, fetch_values

SQL = sql.load("provenance.sql")

MOST_MAKERS = 20
_MOST_BOTS = 500  # in which small contents are looked for


class Maker(NamedTuple):
    """A job whose confirmed answer has a content."""

    bot: int
    name: str
    seq: int
    output: str
    size: int
    ended_at: datetime
    host: str | None
    manifest: str
    args: str
    inputs: str
    from_bot: int | None
    from_seq: int | None
    is_invalidated: bool


def makers(conn: PostgresConnection, owner: int, sha256: str) -> list[Maker]:
    """Jobs of an owner that made a content, of the latest BOTs first; at most MOST_MAKERS."""
    values = {"owner": owner, "hash": bytes.fromhex(sha256), "most": MOST_MAKERS}
    if found := fetch(conn, Maker, SQL["makers"], {**values, "bots": None}):
        return found
    bots = fetch_values(conn, int, SQL["latest_bots"], {"owner": owner, "most": _MOST_BOTS})
    return fetch(conn, Maker, SQL["makers"], {**values, "bots": bots})


def users(conn: PostgresConnection, owner: int, hashes: Iterable[str]) -> list[JobId]:
    """Jobs of an owner that read one of these contents, and have an outcome."""
    return fetch(conn, JobId, SQL["users"], {"owner": owner, "hashes": [*hashes]})


def invalidate(conn: PostgresConnection, owner: int, sha256: str) -> list[JobId]:
    """Let nothing be reused that made this content or depends on it; return what was not so before.

    What was made from a content depends on it, and so on; so do jobs that have the outcome of one
    that does.
    """
    found, seen = list[JobId](), {sha256}
    with conn.transaction():
        made = [JobId(item.bot, item.seq) for item in makers(conn, owner, sha256)]
        jobs = _invalidate(conn, [*made, *users(conn, owner, [sha256])])
        while jobs:
            found += jobs
            hashes = fetch_values(conn, str, SQL["outputs"], _listed(jobs))
            fresh = [item for item in hashes if item not in seen]
            seen.update(fresh)
            jobs = _invalidate(conn, users(conn, owner, fresh)) if fresh else []
    return found


def _invalidate(conn: PostgresConnection, jobs: Iterable[JobId]) -> list[JobId]:
    return fetch(conn, JobId, SQL["invalidate"], _listed(jobs))


def _listed(jobs: Iterable[JobId]) -> dict[str, str]:
    return {"jobs": encode([job._asdict() for job in jobs])}
