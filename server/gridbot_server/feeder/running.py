"""The running BOTs as the feeder reads them in each pass."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gridbot_server.buffer.layout import MAX_BOTS, BotSnapshot
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection

SQL = sql.load("feeder.sql")


@dataclass(frozen=True, slots=True)
class RunningBot:
    """One running BOT as the database has it."""

    state: BotSnapshot
    fed: int
    threshold: int | None
    sticky: bool
    manifest_id: str

    @property
    def unclaimed(self) -> int:
        """First copies that no feeder has put into its buffer yet."""
        return self.state.size - self.fed

    def with_tail(self, tail: bool) -> RunningBot:
        """The same in its tail phase, or out of it."""
        return replace(self, state=self.state._replace(tail=tail))


def read_bots(conn: Connection) -> dict[int, RunningBot]:
    """Return those BOTs that the buffer has room to describe, by their numbers."""
    rows = conn.execute(SQL["bots"], {"most": MAX_BOTS}).fetchall()
    return {row[0]: _bot(*row) for row in rows}


def _bot(
    bot: int, version: int, owner: int, size: int, fed: int, done: int, failed: int, tail: bool,
    threshold: int | None, sticky: bool, created_at: float, turnaround: float | None,
    manifest_id: str, first: int, sent: int, back: int, queued: int,
) -> RunningBot:  # fmt: skip
    state = BotSnapshot(
        bot, version, owner, size, size - first, max(0, queued), max(0, sent - back), done,
        failed, tail, created_at, turnaround,
    )  # fmt: skip
    return RunningBot(state, fed, threshold, sticky, manifest_id)
