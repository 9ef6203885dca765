"""The crews among which checks are drawn, as the feeder knows them (`matching/lots.py`)."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence

from gridbot_server.feeder.running import SQL
from gridbot_server.matching import lots
from gridbot_server.matching.lots import Elector
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch, fetch_only_value

_COUNT_SECONDS = 10.0
_SOON_SECONDS = 1.0  # while crews are few
_SOME = 50


class Electors:
    """Read again every few seconds; nobody foresees the lots, which the system's chance draws."""

    def __init__(self) -> None:
        self._known: Sequence[Elector] = ()
        self._counted_at = -math.inf
        self._chance = random.SystemRandom()
        self.patience = lots.patience(0.0)  # s for which a copy is kept for the crew drawn

    @property
    def count(self) -> int:
        """How many crews there are."""
        return len(self._known)

    def refresh(self, conn: Connection, now: float) -> None:
        """Read them again, if it is time for that."""
        are_few = len(self._known) < _SOME
        if now - self._counted_at < (_SOON_SECONDS if are_few else _COUNT_SECONDS):
            return
        self._counted_at = now
        self._known = fetch(conn, Elector, SQL["electors"], {"new_seconds": lots.NEW_SECONDS})
        self.patience = lots.patience(fetch_only_value(conn, float, SQL["pause"]))

    def draw(self, holders: Collection[int]) -> int:
        """Return for whom a copy is kept, of a job that these owners hold already."""
        return lots.draw(self._known, holders, self._chance.random())
