"""What a client does differently when it runs as a job of a grid (paper sections 5 and 6.5).

It takes little until its node has proved itself, waits after failures instead of eating the
queue, and asks for nothing that it could not end before the grid ends it.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gridbot_client.protocol.messages import Report

# What leaving takes: to end the processes, tell the server, clear the scratch directory.
LEAVING_SECONDS = 20.0
# After a failure on a node where nothing ever ended well, and after the second in a row where
# something did: one failure there is rather the job's fault.  Doubled by each further one.
_UNPROVEN_PENALTY_SECONDS, _PENALTY_SECONDS = 120.0, 60.0
_MOST_PENALTY_SECONDS = 1800.0
LOW_CPU = "low_cpu"  # why a replica failed that kept its CPU idle; its pilot leaves
# By default: less than a hundredth of a CPU over ten minutes.
IDLE_SHARE = 0.01
IDLE_WINDOW_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """What the overlay says to the client that it starts."""

    name: str = ""  # the tag of its submission and its index in it
    ends_at: float | None = None  # when the grid ends it, seconds since 1970
    idle_window_seconds: float = IDLE_WINDOW_SECONDS

    def time_left(self, now: float) -> float | None:
        """Seconds in which work may still run; None where the grid sets no end."""
        return None if self.ends_at is None else max(0.0, self.ends_at - LEAVING_SECONDS - now)


@dataclass(frozen=True, slots=True)
class Record:
    """What this pilot's node did so far."""

    successes: int = 0
    failures_in_row: int = 0
    longest_seconds: float = 0.0  # of the replicas that ended well
    ask_at: float = 0.0  # not before, seconds on the caller's clock
    is_leaving: bool = False

    def after(self, reports: Iterable[Report], now: float) -> Record:
        """The record when these replicas have ended."""
        record = self
        for report in reports:
            record = record._after_one(report, now)
        return record

    def _after_one(self, report: Report, now: float) -> Record:
        if report.how == "success":
            longest = max(self.longest_seconds, report.wall_seconds)
            return Record(self.successes + 1, 0, longest, 0.0, self.is_leaving)
        failures = self.failures_in_row + 1
        ask_at = now + _penalty(failures, has_succeeded=self.successes > 0)
        leaving = self.is_leaving or report.reason == LOW_CPU
        return Record(self.successes, failures, self.longest_seconds, ask_at, leaving)

    def wanted(self, want: int, held: int, now: float) -> int:
        """How many of `want` replicas to ask for: one by one while the node is not trusted."""
        if now < self.ask_at:
            return 0
        if self.failures_in_row or not self.successes:
            return min(want, 1) if not held else 0
        return want

    def is_over(self, time_left: float | None) -> bool:
        """Whether nothing more should be asked for: what comes would not end in time."""
        return self.is_leaving or (time_left is not None and time_left <= self.longest_seconds)


def _penalty(failures: int, *, has_succeeded: bool) -> float:
    """Return the seconds to wait after so many failures in a row."""
    if has_succeeded:
        first, doublings = _PENALTY_SECONDS, failures - 2
    else:
        first, doublings = _UNPROVEN_PENALTY_SECONDS, failures - 1
    if doublings < 0:
        return 0.0
    return min(first * 2.0 ** min(doublings, 20), _MOST_PENALTY_SECONDS)
