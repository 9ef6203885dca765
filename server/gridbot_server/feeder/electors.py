"""The crews among which checks are drawn, as the feeder knows them (`matching/lots.py`)."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence

from gridbot_server.feeder.running import SQL, RunningBot
from gridbot_server.matching import lots
from gridbot_server.matching.lots import Elector, Electorate
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch, fetch_only_value, fetch_values

_COUNT_SECONDS = 10.0
_SOON_SECONDS = 1.0  # while crews are few
_SOME = 50
_KEPT_PER_CREW = 2  # copies that a BOT may have in the buffer
_KEPT_PART = 0.25  # of the buffer, so that they leave room for first copies


class Electors:
    """Read again every few seconds; who foresees `chance` foresees the lots."""

    def __init__(self, chance: random.Random) -> None:
        self._known: Sequence[Elector] = ()
        self._all = Electorate(())
        self._workers: dict[int, Sequence[Elector]] = {}  # by BOT
        self._counted_at = -math.inf
        self._chance = chance
        self.patience = lots.patience(0.0)  # s for which a copy is kept for the crew drawn

    def kept(self, slots: int) -> int:
        """Return how many copies a BOT may keep for crews in a buffer of so many slots."""
        return min(_KEPT_PER_CREW * len(self._known), int(_KEPT_PART * slots))

    def refresh(self, conn: Connection, now: float) -> None:
        """Read them again, if it is time for that."""
        are_few = len(self._known) < _SOME
        if now - self._counted_at < (_SOON_SECONDS if are_few else _COUNT_SECONDS):
            return
        self._counted_at = now
        self._known = fetch(conn, Elector, SQL["electors"], {"new_seconds": lots.NEW_SECONDS})
        self._all = Electorate(self._known)
        self._workers.clear()
        self.patience = lots.patience(fetch_only_value(conn, float, SQL["pause"]))

    def draw(self, conn: Connection, bot: RunningBot, holders: Collection[int], vain: int) -> int:
        """Return for whom a copy is kept, of a job that these owners hold already.

        So many crews were drawn `vain` times and did not come.
        """
        if not bot.is_assured:
            return lots.ANYBODY
        workers = self._of(conn, bot.state.bot) if vain else ()
        return self._all.draw(holders, self._chance.random(), vain, workers)

    def _of(self, conn: Connection, bot: int) -> Sequence[Elector]:
        """Return those that were given jobs of a BOT: they can run it."""
        if bot not in self._workers:
            crews = set(fetch_values(conn, str, SQL["workers"], {"bot": bot}))
            self._workers[bot] = [elector for elector in self._known if elector.crew in crews]
        return self._workers[bot]
