"""The silence cycle: clients that hold replicas and are not heard of any more.

Theory of operation.  Each reply says when the client is to ask again, and the host request writes
that interval beside the time of the request (`client.contact_seconds`).  A pass looks at clients
that hold replicas, a bounded number of them, and marks those that missed three contacts
(`client.silent_since`).  Their jobs are woken: the transitioner does not expect their answers, and
makes copies (`transition.py`).  Their leases stay.  The next request of a client takes the mark
away; so it lost nothing, and its answer counts like any other.

After a time in which nobody could be heard, because the server was down or its machine slept,
clients come back as their back-off lets them.  It doubles, so that takes at most twice as long
again.  Nobody is silent before that.  A clock that is set ahead makes nobody silent, either.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from gridbot_server.cycles.clock import LeapWatch
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch, fetch_only_value

SQL = sql.load("cycles.sql")

MISSED_CONTACTS = 3
PASS_SECONDS = 2.0
# A stock BOINC client with work asks that often; `boinc/session/scheduler_rpc.py` tells it so.
STOCK_CONTACT_SECONDS = 600.0
_LATE_SECONDS = 30.0  # after which a pass finds that nobody could be heard meanwhile
_MOST_BACKOFF_SECONDS = 3600.0  # of clients


class _Holder(NamedTuple):
    """A client that holds replicas."""

    id: int
    seen_at: datetime
    seconds: float  # since then
    contact_seconds: float | None  # within which it was to ask again
    is_stock: bool  # a BOINC client
    is_known: bool  # to be silent


def patience(contact_seconds: float | None, is_stock: bool, least: float) -> float | None:
    """Return after how many seconds without a request a client is silent; None: never.

    That is three intervals of the server's own, and `least` seconds at least.
    """
    if contact_seconds is None:
        return None
    interval = max(contact_seconds, STOCK_CONTACT_SECONDS) if is_stock else contact_seconds
    return max(least, MISSED_CONTACTS * interval)


class Silence:
    """The cycle; it keeps where the last pass ended, and since when clients can be heard.

    A pass looks at `most` clients.
    """

    def __init__(self, least_seconds: float, most: int = 5000) -> None:
        self._least, self._most = least_seconds, most
        self._after = 0  # the client that was looked at last
        self._passed_at: float | None = None  # monotonic, as are the next ones
        self._all_back_at = 0.0
        self._watch = LeapWatch()

    def run_once(self, conn: Connection, now: float) -> int:
        """Mark clients that became silent and wake their jobs; return how many jobs were woken.

        `now` is a monotonic time in seconds.
        """
        self._note_pass(conn, now)
        heard = now - self._all_back_at
        if heard < 0:
            return 0
        values = {"after": self._after, "limit": self._most}
        holders = fetch(conn, _Holder, SQL["holders"], values)
        self._after = holders[-1].id if len(holders) == self._most else 0
        silent = [item for item in holders if self._is_silent(item, heard)]
        if not silent:
            return 0
        with conn.transaction():
            found = {
                "clients": [item.id for item in silent],
                "seen_at": [item.seen_at for item in silent],
            }
            return conn.execute(SQL["silence"], found).rowcount

    def _is_silent(self, item: _Holder, heard: float) -> bool:
        """Whether it is found to have missed its contacts, `heard` seconds after all could be."""
        if item.is_known:
            return False
        seconds = patience(item.contact_seconds, item.is_stock, self._least)
        return seconds is not None and min(item.seconds, heard) > seconds

    def _note_pass(self, conn: Connection, now: float) -> None:
        """Give all clients time to come back, if nobody could be heard for a while."""
        leap = self._watch.leap(conn, now)
        if self._passed_at is None:
            away = fetch_only_value(conn, float, SQL["last_contact"])
        else:
            away = now - self._passed_at
        if away > _LATE_SECONDS:
            self._all_back_at = now + min(2 * away, _MOST_BACKOFF_SECONDS)
        elif leap or self._passed_at is None:
            self._all_back_at = now
        self._passed_at = now
