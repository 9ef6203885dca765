"""Counters of BOTs: totals in the table `bot_stat`, and what happened, for the history.

Each writing process has rows of its own, so that none waits for another; they are summed on read.
What happened is a row of `happening` in the same transaction, which `history/` adds up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode

SQL = sql.load("counters.sql")


CYCLES = "cycles"  # the writer of what no host and no person asks for
API = "api"  # the writer of what people ask for

# What the history of a BOT holds: columns of `bot_history`, which says what they mean.
Happening = Literal[
    "added", "sent", "succeeded", "errors", "expired", "relinquished", "cancelled", "late", "void",
    "done", "failed", "retried", "recalled", "cpu_seconds",
]  # fmt: skip

NO_GRID = ""  # that of machines which are no pilots, and of what happens on no machine


class FailureReason(NamedTuple):
    """Why replicas of a BOT failed on a grid."""

    bot: int
    grid: str
    reason: str


@dataclass(slots=True)
class Counters:
    """What one transaction changes in `bot_stat`, and what it adds to the history."""

    values: Counter[tuple[int, str]] = field(default_factory=Counter)
    happened: dict[tuple[int, str], dict[Happening, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )
    failures: Counter[FailureReason] = field(default_factory=Counter)
    requests: int = 0  # of hosts

    def add(self, bot: int, name: str, value: int = 1) -> None:
        """Count something of a BOT."""
        self.values[bot, name] += value

    def note(self, bot: int, grid: str, what: Happening, value: float = 1) -> None:
        """Add to this minute of a BOT's history."""
        self.happened[bot, grid][what] += value

    def write(self, conn: Connection, writer: str) -> None:
        """Add them to the database, in one order for all writers."""
        totals = [
            {"bot": bot, "name": name, "value": value}
            for (bot, name), value in sorted(self.values.items())
        ]
        values = {"writer": writer, "counters": encode(totals)}
        if happened := self._happenings():
            conn.execute(SQL["count_and_note"], {**values, "happened": encode(happened)})
        elif totals:
            conn.execute(SQL["count"], values)

    def _happenings(self) -> list[dict[str, Any]]:
        """As `happening` holds them."""
        found: list[dict[str, Any]] = [
            {"bot": bot, "grid": grid, **dict(noted.items())}
            for (bot, grid), noted in self.happened.items()
        ]
        for failure, count in self.failures.items():
            found.append({**failure._asdict(), "failed_replicas": count})
        if self.requests:
            found.append({"requests": self.requests})
        return found
