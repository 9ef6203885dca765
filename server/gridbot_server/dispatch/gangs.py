"""Gangs in dispatch: jobs that run together, so that their leases gather until all are made.

A gang gathers from its first lease on.  While it does, it comes before all other work on each host
that may have a part of it, the gang that began first before the others.  So no two gangs wait for
what the other one holds, as long as their requirements stay as they are; where that fails, the time
for gathering is over, and the BOT rests as long, so that others may gather (`cycles/gangs.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gridbot_server.dispatch.catalog import Entry
from gridbot_server.dispatch.choose import Candidate
from gridbot_server.dispatch.leases import NewLease
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode, fetch

SQL = sql.load("gangs.sql")

PREPARE_SECONDS = 600.0  # for a gang of which all jobs are leased, to fetch what they need


class _Gathering(NamedTuple):
    """A BOT of gangs: since when one of them gathers, if one does (s since 1970), and its lack."""

    bot: int
    since: float | None
    lacks: int | None
    rests: bool


def look(conn: Connection, candidates: Mapping[int, Candidate]) -> None:
    """Note which BOTs of gangs gather, and let those that rest have no work.

    Nothing is asked while there are no such BOTs.
    """
    of_gangs = [item.bot for item in candidates.values() if item.together > 1]
    if not of_gangs:
        return
    for found in fetch(conn, _Gathering, SQL["gathering"], {"bots": of_gangs}):
        candidate = candidates[found.bot]
        if found.since is not None and found.lacks is not None:
            candidate.gathers_since, candidate.lacks = found.since, found.lacks
        elif found.rests:
            candidate.rest()
        else:
            candidate.lacks = candidate.together


def take(candidate: Candidate, count: int) -> None:
    """Note that members of a BOT's gang are about to be leased.

    Once it is whole, no other gang of the BOT begins in the same batch: one that gathers elsewhere
    may have waited for longer.
    """
    if candidate.lacks is not None:
        candidate.lacks = max(0, candidate.lacks - count)


def gather(conn: Connection, sent: Sequence[NewLease], entries: Mapping[int, Entry]) -> None:
    """Note of which gangs jobs were leased.  Each row is written once in its transaction."""
    sizes = {bot: entry.manifest.together for bot, entry in entries.items()}
    gangs = {
        (lease.id.bot, lease.id.seq // sizes[lease.id.bot])
        for lease in sent
        if sizes[lease.id.bot] > 1
    }
    if gangs:
        listed = {"gangs": encode([{"bot": bot, "number": n} for bot, n in sorted(gangs)])}
        conn.execute(SQL["gather"], listed)
        conn.execute(SQL["make_whole"], {**listed, "seconds": PREPARE_SECONDS})
