"""Reads jobs with the proofs that they belong to their signed BOTs."""

from __future__ import annotations

from binascii import b2a_base64
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from gridbot_client.protocol import job_table
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import JobId, JobTexts, encode, fetch

SQL = sql.load("job_proofs.sql")


class _Part(NamedTuple):
    """A signed part of a BOT's job table."""

    bot: int
    first: int
    leaves: bytes
    signature: bytes


def jobs_of_range(
    conn: Connection, query: bytes, values: Mapping[str, Any], bot: int, lo: int, hi: int
) -> list[JobTexts]:
    """Run a query of jobs lo .. hi-1 of a BOT, its `proof` empty; return them with their proofs."""
    jobs = fetch(conn, JobTexts, query, values)
    if not jobs:
        return []
    parts = fetch(conn, _Part, SQL["parts_of_range"], {"bot": bot, "lo": lo, "hi": hi})
    return _with_proofs(jobs, parts)


def read_jobs(conn: Connection, ids: Iterable[tuple[int, int]]) -> dict[JobId, JobTexts]:
    """Return any jobs, by their ids, with their proofs."""
    listed = encode([{"bot": bot, "seq": seq} for bot, seq in sorted(set(ids))])
    if listed == "[]":
        return {}
    jobs = fetch(conn, JobTexts, SQL["jobs"], {"jobs": listed})
    parts = fetch(conn, _Part, SQL["parts_of_jobs"], {"jobs": listed})
    return {JobId(job.bot, job.seq): job for job in _with_proofs(jobs, parts)}


def _with_proofs(jobs: list[JobTexts], parts: Collection[_Part]) -> list[JobTexts]:
    if not parts:
        return jobs
    wanted: defaultdict[int, set[int]] = defaultdict(set)
    for job in jobs:
        wanted[job.bot].add(job.seq)
    proofs = {
        (part.bot, seq): text for part in parts for seq, text in _proofs(part, wanted[part.bot])
    }
    return [job._replace(proof=proofs.get((job.bot, job.seq), "")) for job in jobs]


def _proofs(part: _Part, wanted: Collection[int]) -> Iterable[tuple[int, str]]:
    leaves = job_table.split(part.leaves)
    tree = job_table.levels(leaves)
    for place in range(len(leaves)):
        if part.first + place in wanted:
            path = job_table.path_of(tree, place)
            proof = job_table.Proof(place, len(leaves), part.signature, path)
            yield part.first + place, b2a_base64(proof.encode(), newline=False).decode()
