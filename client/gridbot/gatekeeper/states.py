"""States of a job as ARC names them, and what they follow from.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gridbot.api.results import Result
from gridbot.api.state import BotState


class ArcState(StrEnum):
    """States of a job, of those that A-REX's REST interface has."""

    ACCEPTED = "ACCEPTED"  # it waits for input files
    SUBMITTING = "SUBMITTING"  # its BOT may exist already
    QUEUING = "QUEUING"  # it waits for a machine
    RUNNING = "RUNNING"
    HELD = "HELD"
    KILLING = "KILLING"  # it is being cancelled
    FINISHING = "FINISHING"  # its outputs are being fetched
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"


ENDED = frozenset((ArcState.FINISHED, ArcState.FAILED, ArcState.KILLED))


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job ended; the reason is empty if it is FINISHED."""

    state: ArcState
    reason: str = ""
    exit_code: int | None = None
    cpu_seconds: int = 0
    wall_seconds: int = 0


def of_bot(bot: BotState) -> ArcState:
    """The state of a job whose BOT goes on."""
    if bot.jobs_running:
        return ArcState.RUNNING
    return ArcState.HELD if bot.is_held else ArcState.QUEUING


def end_of(result: Result, *, is_killed: bool) -> JobEnd:
    """How a job ended, by its result; one that was done before it was killed counts as done."""
    is_done = result.state == "done"
    if is_done and not result.exit_code:
        state, reason = ArcState.FINISHED, ""
    elif is_done:
        state, reason = ArcState.FAILED, f"the program exited with {result.exit_code}"
    elif is_killed:
        state, reason = ArcState.KILLED, "killed by its owner"
    else:
        state, reason = ArcState.FAILED, result.reason or "failed"
    return JobEnd(
        state, reason, result.exit_code, round(result.cpu_seconds), round(result.wall_seconds)
    )
