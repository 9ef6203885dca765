"""Gangs in dispatch: jobs that run together, so that their leases gather until all are made.

A gang gathers from its first lease on.  While it does, it comes before all other work on each host
that may have a part of it, the gang that began first before the others, and no other one begins
there.  So no two gangs wait for what the other one holds, as long as their requirements stay as
they are; where that fails, the time for gathering is over, and the BOT rests as long, so that
others may gather (`cycles/gangs.py`).

Gangs are locked before the leases of their jobs are made.  No gang is waited for: who has it may
want a lease that this batch has ended.  Its hosts ask again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from typing import NamedTuple

from gridbot_server.buffer.interface import Buffer
from gridbot_server.buffer.layout import Slot
from gridbot_server.dispatch.candidates import Candidate
from gridbot_server.dispatch.leases import NewLease, release_copies
from gridbot_server.dispatch.view import View
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import array, encode, fetch, fetch_only_value, fetch_values

SQL = sql.load("gangs.sql")

LOCK = 0x67616E6773  # who holds it begins gangs
# What a gang of which all jobs are leased may take to fetch what they need: so many times what it
# may gather, and at least so many seconds.
_PREPARE = {"gatherings": 10, "least": 600.0}


class _Gang(NamedTuple):
    """A gang of a BOT."""

    bot: int
    number: int


class _Found(NamedTuple):
    """A gang that gathers: since when (s since 1970), and which jobs it lacks."""

    bot: int
    number: int
    since: float
    lacks: list[int]


class Gathering:
    """The gangs that gather while a batch is served, and whether the batch may begin others.

    A gang begins only where no other one lacks a member that could run there, or each would hold
    what the other waits for.  Two processes cannot see what the other is about to begin.  So only
    one begins gangs at a time, until its commit, and only if it knew of all that gather then.
    """

    def __init__(self, conn: Connection, buffer: Buffer, seen: View) -> None:
        self._conn, self._buffer = conn, buffer
        self._candidates, self._copies = seen.candidates, seen.copies
        self._together = {bot: seen.candidates[bot].together for bot in sorted(seen.gangs)}
        self._known: frozenset[_Gang] = frozenset()
        self._members: dict[int, list[Slot]] = {}  # first copies of gangs that gather, by BOT
        self._begun: Set[_Gang] = frozenset()
        self._may_begin: bool | None = None  # not asked yet

    @classmethod
    def of(cls, conn: Connection, buffer: Buffer, seen: View) -> Gathering:
        """Note which BOTs of gangs gather, and let those that rest have no work.

        Nothing is asked while there are no such BOTs.
        """
        made = cls(conn, buffer, seen)
        if made._together:
            made._look()
        return made

    def _look(self) -> None:
        resting = set(fetch_values(self._conn, int, SQL["resting"]))
        for bot, together in self._together.items():
            self._candidates[bot].lacks = together
            if bot in resting:
                self._candidates[bot].rest()
        found = fetch(self._conn, _Found, SQL["gathering"], {"bots": array(self._together)})
        self._known = frozenset(_Gang(item.bot, item.number) for item in found)
        for item in {item.bot: item for item in found}.values():  # of each BOT the oldest
            if its := self._candidates.get(item.bot):
                its.gathers_since, its.lacks = item.since, len(item.lacks)
                self._meet(its, item.number, set(item.lacks))

    def _begin(self, candidate: Candidate, number: int, taken: Sequence[Slot] = ()) -> None:
        size = candidate.together
        jobs = set(range(number * size, (number + 1) * size))
        self._meet(candidate, number, jobs.difference(slot.seq for slot in taken))

    def _meet(self, candidate: Candidate, number: int, jobs: Collection[int]) -> None:
        """Let all that is at hand of a BOT be of one gang, which lacks these jobs.

        The buffer is looked through only for those that may be there: it is locked meanwhile.
        """
        bot, first = candidate.bot, set(jobs)
        if candidate.copies:
            self._copies[bot].keep_to(jobs)
            first.difference_update(copy.seq for copy in candidate.copies())
        if candidate.fresh:
            self._members[bot] = self._buffer.first_copies(bot, first)
        fresh = len(self._members.get(bot, ()))
        candidate.of_other_gangs = max(0, candidate.first_copies - fresh)
        candidate.gang, candidate.fresh, candidate.dry = number, fresh, False

    def may_begin(self) -> bool:
        """Whether this batch may begin gangs; if so, no other process does until its commit."""
        if self._may_begin is None:
            is_free = fetch_only_value(self._conn, bool, SQL["try_to_begin"], {"lock": LOCK})
            self._may_begin = is_free and self._known.issuperset(
                fetch(self._conn, _Gang, SQL["all_gathering"])
            )
        return self._may_begin

    def take_first(self, candidate: Candidate, count: int, generation: int) -> list[Slot]:
        """Take first copies of the gang that gathers, or of the first one in the buffer."""
        found: list[Slot] = []
        if candidate.gang is None:
            found = self._buffer.take_fresh(candidate.bot, 1, generation)
            if not found:
                return []
            candidate.fresh -= 1
            self._begin(candidate, found[0].seq // candidate.together, found)
        members = self._members.get(candidate.bot, [])
        wanted = members[: count - len(found)]
        del members[: len(wanted)]
        candidate.fresh = len(members)
        return found + self._buffer.take_copies(wanted, generation)

    def admits(self, candidate: Candidate, copy: Slot) -> bool:
        """Whether a copy is of the gang that gathers, which it is if none does."""
        number = copy.seq // candidate.together
        if candidate.gang is None:
            self._begin(candidate, number)
        return candidate.gang == number

    def lock(self, leases: Sequence[NewLease]) -> list[NewLease]:
        """Return those that may be made: of no gang, or of one that is ours until the commit.

        Copies that are refused are released.
        """
        wanted = self._of(leases)
        if not wanted:
            return list(leases)
        ours = set(fetch(self._conn, _Gang, SQL["join"], _listed(wanted)))
        if (others := wanted - ours) and self.may_begin():
            self._begun = set(fetch(self._conn, _Gang, SQL["begin"], _listed(others)))
            ours |= self._begun
        made: list[NewLease] = []
        refused: list[NewLease] = []
        for lease in leases:
            gang = self._gang(lease)
            (made if gang is None or gang in ours else refused).append(lease)
        release_copies(self._conn, refused)
        return made

    def settle(self, sent: Sequence[NewLease]) -> None:
        """Note which gangs are whole with these leases; forget those that have none."""
        gangs = self._of(sent)
        if gangs:
            self._conn.execute(SQL["make_whole"], {**_listed(gangs), **_PREPARE})
        if in_vain := self._begun - gangs:
            self._conn.execute(SQL["disband"], _listed(in_vain))

    def _of(self, leases: Iterable[NewLease]) -> Set[_Gang]:
        """The gangs of these leases."""
        if not self._together:
            return frozenset()
        return {gang for lease in leases if (gang := self._gang(lease)) is not None}

    def _gang(self, lease: NewLease) -> _Gang | None:
        together = self._together.get(lease.id.bot)
        return None if together is None else _Gang(lease.id.bot, lease.id.seq // together)


def _listed(gangs: Iterable[_Gang]) -> dict[str, str]:
    return {"gangs": encode([gang._asdict() for gang in sorted(gangs)])}
