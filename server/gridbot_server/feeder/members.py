"""What gangs that gather lack: in each machine's buffer, whoever has claimed it.

A gang gathers wherever its hosts ask.  Its other members may be claimed by another machine, whose
hosts are busy, or wait in the database behind those of gangs that broke at the same time.  That a
replica is in two buffers does no harm: its lease decides.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import NamedTuple

from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.buffer.layout import BufferContents
from gridbot_server.feeder.running import ClaimedRange
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import JobId, fetch

SQL = sql.load("gangs.sql")


class Lacking(NamedTuple):
    """Members that gangs lack and the buffer has not."""

    first: list[JobId]
    copies: list[ReplicaId]


def claim(
    conn: Connection, bots: Collection[int], machine: str, lifetime: timedelta
) -> list[ClaimedRange]:
    """Claim the first copies of what gangs of these BOTs lack, and return the ranges.

    A gang may begin with the last jobs of a range.  The others are claimed before they go to any
    machine, and no machine gives them back to the database: another one may have them.
    """
    if not bots:
        return []
    arguments = {"bots": list(bots), "machine": machine, "lifetime": lifetime}
    return fetch(conn, ClaimedRange, SQL["claim_gathering"], arguments)


def lacking(conn: Connection, bots: Collection[int], held: BufferContents) -> Lacking:
    """Look at the gangs of these BOTs.  The buffer was read before the database."""
    if not bots:
        return Lacking([], [])
    wanted = {"bots": list(bots)}
    first = fetch(conn, JobId, SQL["first_of_gathering"], wanted)
    copies = fetch(conn, ReplicaId, SQL["copies_of_gathering"], wanted)
    there = {(slot.bot, slot.seq, slot.replica) for slot in held.slots} if copies else set()
    jobs = set(held.fresh) if first else set()
    return Lacking(
        [name for name in first if name not in jobs],
        [name for name in copies if name not in there],
    )
