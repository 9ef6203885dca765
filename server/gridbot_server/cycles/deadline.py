"""The deadline cycle: a replica whose deadline has passed is replaced (paper Algorithm 2)."""

from __future__ import annotations

import logging

from gridbot_server.cycles.clock import LeapWatch
from gridbot_server.storage import moves, sql
from gridbot_server.storage.counters import CYCLES, Counters
from gridbot_server.storage.db import Connection
from gridbot_server.storage.states import Event

log = logging.getLogger(__name__)

SQL = sql.load("cycles.sql")


class DeadlineCycle:
    """The cycle; a clock that is set ahead lets no deadline pass before its time."""

    def __init__(self) -> None:
        self._watch = LeapWatch()

    def run_once(self, conn: Connection, now: float) -> int:
        """End expired leases; return how many.  `now` is the time since boot, in seconds."""
        if leap := self._watch.leap(conn, now):
            conn.execute(SQL["extend_leases"], {"seconds": leap})
            log.warning("the clock was set ahead by %.0f s: deadlines go with it", leap)
        return run_once(conn)


def run_once(conn: Connection, limit: int = 1000) -> int:
    """End up to `limit` expired leases and wake the transitioner; return how many.

    The transitioner makes the new replica, and a late answer may still win.
    """
    with conn.transaction():
        return moves.relinquish(conn, Event.DEADLINE_PASSED, {"limit": limit})


def sweep_cancelled(conn: Connection, limit: int = 5000) -> int:
    """End leases and copies of cancelled BOTs; return how many."""
    values = {"limit": limit}
    with conn.transaction():
        counters = Counters()
        count = moves.end_unanswered(conn, Event.BOT_CANCELLED, values, counters)
        count += moves.drop_copies(conn, "sweep_copies", values, counters)
        counters.write(conn, CYCLES)
        conn.execute(SQL["sweep_unjudged"], values)
    return count
