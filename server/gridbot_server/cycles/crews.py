"""How many crews work for a BOT: so many could check, or agree with, each other."""

from __future__ import annotations

from typing import NamedTuple

from gridbot_server.matching import lots
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch, fetch_only

SQL = sql.load("assurance.sql")

_REST = 30.0  # times as long as counting took, a count holds


class CrewsAtWork(NamedTuple):
    """Crews that work for a BOT, and those of them that came just now."""

    crews: int
    new: int

    @property
    def are_gathering(self) -> bool:
        """Whether so many are new that they may be a ring."""
        return lots.are_gathering(self.crews, self.new)


def crews_at_work(conn: Connection, bot: int) -> CrewsAtWork:
    """Count those of a BOT: while it is young all that ask for work, later those that got some.

    To count all costs the more the more clients there are, so a count holds for a while.
    """
    known = fetch(conn, CrewsAtWork, SQL["workers_of_an_older_bot"], {"bot": bot})
    known = known or fetch(conn, CrewsAtWork, SQL["asking_crews"], {"rest": _REST})
    if known:
        return known[0]
    given = {"new_seconds": lots.NEW_SECONDS}
    return fetch_only(conn, CrewsAtWork, SQL["count_asking_crews"], given)
