"""How many crews work for a BOT: so many could check, or agree with, each other."""

from __future__ import annotations

from typing import NamedTuple

from gridbot_server.matching import lots
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch_one, fetch_only, fetch_only_value

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


class _Workers(NamedTuple):
    """The crews of an older BOT; None if they are to be counted."""

    crews: int | None


def crews_at_work(conn: Connection, bot: int) -> CrewsAtWork:
    """Count those of a BOT: while it is young all that ask for work, later those that got some.

    None of the latter is as new.  To count costs the more the more clients, or replicas, there are,
    so a count holds for a while.
    """
    workers = fetch_one(conn, _Workers, SQL["workers_of_an_older_bot"], {"bot": bot, "rest": _REST})
    if workers is not None:
        if (crews := workers.crews) is None:
            crews = fetch_only_value(conn, int, SQL["count_workers"], {"bot": bot})
        return CrewsAtWork(crews, 0)
    known = fetch_one(conn, CrewsAtWork, SQL["asking_crews"], {"rest": _REST})
    given = {"new_seconds": lots.NEW_SECONDS}
    return known or fetch_only(conn, CrewsAtWork, SQL["count_asking_crews"], given)
