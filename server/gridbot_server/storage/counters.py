"""Counters of BOTs: table `bot_stat`, one set of rows per writing process, summed on read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode

SQL = sql.load("counters.sql")


CYCLES = "cycles"  # the writer of what no host and no person asks for


@dataclass(slots=True)
class Counters:
    """Changes of `bot_stat` in one transaction."""

    values: Counter[tuple[int, str]] = field(default_factory=Counter)

    def add(self, bot: int, name: str, value: int = 1) -> None:
        """Count something of a BOT."""
        self.values[bot, name] += value

    def write(self, conn: Connection, writer: str) -> None:
        """Add them to the database, in one order for all writers."""
        rows = [
            {"bot": bot, "name": name, "value": value}
            for (bot, name), value in sorted(self.values.items())
        ]
        if rows:
            conn.execute(SQL["count"], {"writer": writer, "counters": encode(rows)})
