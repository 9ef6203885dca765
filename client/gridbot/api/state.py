"""State of a BOT as the server reports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from gridbot.api.documents import BotDetails, BotSummary

FINAL = ("done", "cancelled")


@dataclass(frozen=True)
class BotState:
    """A BOT at one moment; `document` is the server's whole response."""

    id: int
    name: str
    owner: str
    state: str  # open, running, done or cancelled
    jobs_total: int
    jobs_done: int
    jobs_failed: int
    jobs_cancelled: int  # of those that failed
    jobs_running: int
    jobs_unsent: int
    tail: bool
    growing: bool  # it takes further jobs until it is closed
    round: int
    created_at: datetime | None
    ended_at: datetime | None
    jobs_per_second: float | None
    eta: timedelta | None
    document: Mapping[str, Any] = field(repr=False)

    @property
    def is_final(self) -> bool:
        """True if the BOT has ended; only a retry changes it again."""
        return self.state in FINAL

    @property
    def jobs_finished(self) -> int:
        """Jobs that are done or failed."""
        return self.jobs_done + self.jobs_failed


def bot_state(document: BotSummary) -> BotState:
    """State from the server's summary or details of a BOT."""
    # Of a summary, the fields of the details are missing.
    details = cast(BotDetails, document)
    rate, eta = details.get("jobs_per_second"), details.get("eta_seconds")
    return BotState(
        id=document["id"],
        name=document["name"],
        owner=document["owner"],
        state=document["state"],
        jobs_total=document["jobs_total"],
        jobs_done=document["jobs_done"],
        jobs_failed=document["jobs_failed"],
        jobs_cancelled=document.get("jobs_cancelled") or 0,
        jobs_running=document.get("jobs_running") or 0,
        jobs_unsent=document.get("jobs_unsent") or 0,
        tail=bool(document.get("tail")),
        growing=bool(document.get("growing")),
        round=details.get("round") or 0,
        created_at=_time(document.get("created_at")),
        ended_at=_time(document.get("ended_at")),
        jobs_per_second=rate,
        eta=None if eta is None else timedelta(seconds=eta),
        document=document,
    )


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
