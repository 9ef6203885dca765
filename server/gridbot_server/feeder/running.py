"""The running BOTs as the feeder reads them in each pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gridbot_server.buffer.layout import MAX_BOTS, BotSnapshot
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import array, fetch

SQL = sql.load("feeder.sql")


@dataclass(frozen=True, slots=True)
class RunningBot:
    """One running BOT as the database has it."""

    state: BotSnapshot
    fed: int
    threshold: int | None
    sticky: bool
    manifest_id: str
    growing: bool = False
    has_cancelled: bool = False  # some of its jobs have outcomes, and were never sent
    is_assured: bool = False  # strangers check each other's answers
    together: int = 1  # jobs of a gang

    @property
    def unclaimed(self) -> int:
        """First copies that no feeder has put into its buffer yet."""
        return self.state.size - self.fed

    def skipped(self, fresh: int) -> int:
        """Of `unclaimed`, those that were cancelled; `fresh` first copies are in the buffer.

        They are claimed beside what is wanted, so that many of them delay no other job.
        """
        if not self.has_cancelled:
            return 0
        return max(0, self.unclaimed - max(0, self.state.fresh_unsent - fresh))

    def with_tail(self, tail: bool) -> RunningBot:
        """The same in its tail phase, or out of it."""
        return replace(self, state=self.state._replace(tail=tail))


class ClaimedRange(NamedTuple):
    """Jobs lo .. hi-1 of a BOT, claimed for this machine."""

    bot: int
    lo: int
    hi: int


class _Row(NamedTuple):
    """One row of the query `bots`: a `BotSnapshot`, and what a `RunningBot` has beside it."""

    bot: int
    version: int
    owner: int
    size: int
    fresh_unsent: int
    copies_unsent: int
    running: int
    done: int
    failed: int
    tail: bool
    created_at: float
    mean_turnaround: float | None
    usual_seconds: float | None
    fed: int
    threshold: int | None
    sticky: bool
    growing: bool
    has_cancelled: bool
    together: int
    is_assured: bool
    manifest_id: str
    first_round: int


def read_bots(
    conn: Connection, slots: int, only: Sequence[int] | None = None
) -> dict[int, RunningBot]:
    """Return the BOTs for which a buffer of `slots` has room, by their numbers, or some of them.

    The oldest come first: each needs a slot of its own.
    """
    values = {"most": min(MAX_BOTS, slots), "only": None if only is None else array(only)}
    return {row.bot: _bot(row) for row in fetch(conn, _Row, SQL["bots"], values)}


def _bot(row: _Row) -> RunningBot:
    state = BotSnapshot(
        bot=row.bot,
        version=row.version,
        owner=row.owner,
        size=row.size,
        fresh_unsent=row.fresh_unsent,
        copies_unsent=row.copies_unsent,
        running=row.running,
        done=row.done,
        failed=row.failed,
        tail=row.tail,
        created_at=row.created_at,
        mean_turnaround=row.mean_turnaround,
        first_round=row.first_round,
        usual_seconds=row.usual_seconds,
    )
    return RunningBot(
        state, row.fed, row.threshold, row.sticky, row.manifest_id, row.growing, row.has_cancelled,
        row.is_assured, row.together,
    )  # fmt: skip
