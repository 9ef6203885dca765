"""State of a BOT as the server reports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from html import escape
from typing import Any, cast

from gridbot.api.documents import BotDetails, BotSummary
from gridbot.printing import counted
from gridbot_client.terminal import printable

FINAL = ("done", "cancelled")


@dataclass(frozen=True)
class BotState:
    """A BOT at one moment; `document` is the server's whole response."""

    id: int
    name: str
    owner: str
    state: str  # open, running, held, done or cancelled
    held: str | None  # why it is held
    jobs_total: int
    jobs_done: int
    jobs_failed: int
    jobs_cancelled: int  # of those that failed
    jobs_running: int
    jobs_silent: int  # that only silent hosts have
    jobs_in_progress: int  # that hosts have which are not silent
    jobs_waiting: int  # that no host has
    jobs_unsent: int
    tail: bool
    growing: bool  # it takes further jobs until it is closed
    group: str  # that it is in, or empty
    round: int
    version: int  # of the manifest
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
    def is_held(self) -> bool:
        """True if nothing of it is sent until it is resumed."""
        return self.state == "held"

    @property
    def has_stopped(self) -> bool:
        """True if it has ended or is held: no job begins until its owner does something."""
        return self.is_final or self.is_held

    @property
    def phase(self) -> str:
        """Its state in words, which tell failures apart: `done, 40 failed`."""
        failed = self.jobs_failed - self.jobs_cancelled
        if self.state == "done" and failed:
            return f"done, {failed} failed"
        return "growing" if self.growing and not self.is_held else self.state

    @property
    def jobs_finished(self) -> int:
        """Jobs that are done or failed."""
        return self.jobs_done + self.jobs_failed

    def _repr_html_(self) -> str:
        """A notebook's view, with a bar."""
        counts = [(self.jobs_done, "done"), (self.jobs_failed, "failed"),
                  (self.jobs_in_progress, "in progress"), (self.jobs_silent, "with silent hosts"),
                  (self.jobs_waiting, "unsent")]  # fmt: skip
        told = ", ".join(f"{number:,} {word}" for number, word in counts if number)
        return (
            f"<div><b>BOT {self.id} {escape(self.name)}</b> {escape(self.phase)}<br>"
            f'<progress value="{self.jobs_finished}" max="{max(1, self.jobs_total)}"></progress> '
            f"{told or 'nothing yet'} of {counted(self.jobs_total, 'job')}</div>"
        )


def why_held(state: BotState) -> str:
    """Why a held BOT is, and what to do."""
    return (
        f"bot {state.id} is held: {printable(state.held or 'no reason told')};"
        f" for details: gridbot bot logs {state.id} --summary;"
        f" to go on as it is: gridbot bot resume {state.id}"
    )


def bot_state(document: BotSummary) -> BotState:
    """State from the server's summary or details of a BOT."""
    # Of a summary, the fields of the details are missing.
    details = cast(BotDetails, document)
    # A server before these fields tells replicas only.
    sent = document.get("jobs_in_progress", document.get("jobs_running") or 0)
    waiting = document.get("jobs_waiting", document.get("jobs_unsent") or 0)
    rate, eta = details.get("jobs_per_second"), details.get("eta_seconds")
    return BotState(
        id=document["id"],
        name=document["name"],
        owner=document["owner"],
        state=document["state"],
        held=document.get("held"),
        jobs_total=document["jobs_total"],
        jobs_done=document["jobs_done"],
        jobs_failed=document["jobs_failed"],
        jobs_cancelled=document.get("jobs_cancelled") or 0,
        jobs_running=document.get("jobs_running") or 0,
        jobs_silent=document.get("jobs_silent") or 0,
        jobs_in_progress=sent,
        jobs_waiting=waiting,
        jobs_unsent=document.get("jobs_unsent") or 0,
        tail=bool(document.get("tail")),
        growing=bool(document.get("growing")),
        group=document.get("group") or "",
        round=details.get("round") or 0,
        version=details.get("version") or 1,
        created_at=_time(document.get("created_at")),
        ended_at=_time(document.get("ended_at")),
        jobs_per_second=rate,
        eta=None if eta is None else timedelta(seconds=eta),
        document=document,
    )


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
