"""Gangs in dispatch: jobs that run together, so that their leases gather until all are made.

A gang gathers from its first lease on.  While it does, it comes before all other work on each host
that may have a part of it, the gang that began first before the others, and no other one begins
there.  So no two gangs wait for what the other one holds, as long as their requirements stay as
they are; where that fails, the time for gathering is over, and the BOT rests as long, so that
others may gather (`cycles/gangs.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from gridbot_server.buffer.layout import Slot
from gridbot_server.dispatch.choose import Candidate
from gridbot_server.dispatch.leases import NewLease
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode, fetch, fetch_only_value, fetch_values

SQL = sql.load("gangs.sql")

LOCK = 0x67616E6773  # who holds it begins gangs
PREPARE_SECONDS = 600.0  # for a gang of which all jobs are leased, to fetch what they need


class _Found(NamedTuple):
    """A gang that gathers: since when (s since 1970), and how many members it lacks."""

    bot: int
    number: int
    since: float
    lacks: int


class Gathering:
    """The gangs that gather while a batch is served, and whether the batch may begin others.

    A gang begins only where no other one lacks a member that could run there, or each would hold
    what the other waits for.  Two processes cannot see what the other is about to begin.  So only
    one begins gangs at a time, until its commit, and only if it knew of all that gather then.
    """

    def __init__(
        self, conn: Connection, candidates: Mapping[int, Candidate], known: Collection[_Found]
    ) -> None:
        self._conn, self._candidates = conn, candidates
        self._known = {(item.bot, item.number) for item in known}
        self._may_begin: bool | None = None  # not asked yet

    def may_begin(self) -> bool:
        """Whether this batch may begin gangs; if so, no other process does until its commit."""
        if self._may_begin is None:
            is_free = fetch_only_value(self._conn, bool, SQL["try_to_begin"], {"lock": LOCK})
            self._may_begin = is_free and all(
                item.bot in self._candidates and (item.bot, item.number) in self._known
                for item in fetch(self._conn, _Found, SQL["gathering"])
            )
        return self._may_begin


def look(conn: Connection, candidates: Mapping[int, Candidate]) -> Gathering:
    """Note which BOTs of gangs gather, and let those that rest have no work.

    Nothing is asked while there are no such BOTs.
    """
    of_gangs = [item for item in candidates.values() if item.together > 1]
    if not of_gangs:
        return Gathering(conn, candidates, ())
    resting = set(fetch_values(conn, int, SQL["resting"]))
    for candidate in of_gangs:
        candidate.lacks = candidate.together
        if candidate.bot in resting:
            candidate.rest()
    known = fetch(conn, _Found, SQL["gathering"])
    for found in known:
        if its := candidates.get(found.bot):
            its.gathers_since, its.lacks, its.gang = found.since, found.lacks, found.number
    return Gathering(conn, candidates, known)


def add_members(candidate: Candidate, found: Sequence[Slot]) -> Sequence[Slot]:
    """Note that jobs are about to be leased, in order; return those at the end of other gangs.

    Once a gang is whole, no other one of its BOT begins in the same batch: one that gathers
    elsewhere may have waited for longer.
    """
    if candidate.lacks is None or not found:
        return ()
    if candidate.gang is None:
        candidate.gang = found[0].seq // candidate.together
    count = sum(
        1 for _ in takewhile(lambda slot: slot.seq // candidate.together == candidate.gang, found)
    )
    candidate.lacks = max(0, candidate.lacks - count)
    return found[count:]


def gather(conn: Connection, sent: Sequence[NewLease], of_gangs: Sequence[Candidate]) -> None:
    """Note of which gangs jobs were leased.  Each row is written once in its transaction."""
    if not of_gangs:
        return
    sizes = {item.bot: item.together for item in of_gangs}
    gangs = {
        (lease.id.bot, lease.id.seq // sizes[lease.id.bot])
        for lease in sent
        if lease.id.bot in sizes
    }
    if gangs:
        listed = {"gangs": encode([{"bot": bot, "number": n} for bot, n in sorted(gangs)])}
        conn.execute(SQL["gather"], listed)
        conn.execute(SQL["make_whole"], {**listed, "seconds": PREPARE_SECONDS})
