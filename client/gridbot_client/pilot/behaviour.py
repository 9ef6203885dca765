"""Behaviour of a pilot, a client that runs as a job of a grid (paper sections 5 and 6.5).  Pure.

It takes one replica at a time until one has succeeded on its node.  It backs off after failures,
so that a black hole does not drain the queue.  It asks for no work that would outlive its walltime.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gridbot_client.backoff import BackOff
from gridbot_client.protocol.messages import Report

# Time to end the processes, report, and clear the scratch directory.
LEAVING_SECONDS = 20.0
# First delay after a failure on a node without any success, and after the second failure in a row
# on a node with one: a single failure there is rather the job's fault.  Doubles with each further.
_UNPROVEN_PENALTIES = BackOff(least=120.0, most=1800.0)
_PENALTIES = BackOff(least=60.0, most=1800.0)
LOW_CPU = "low_cpu"  # reason code of a replica that kept its CPU idle; its pilot exits
# Default: less than a hundredth of a CPU over ten minutes.
IDLE_SHARE = 0.01
IDLE_WINDOW_SECONDS = 600.0
# Without work a pilot stays for this share of the time that it had some, and as long as it waited
# in its queue: so long would the next one wait.
_IDLE_EARNED_SHARE = 0.05
_LEAST_IDLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotOptions:
    """Settings of a pilot, from the overlay."""

    name: str = ""  # tag of its submission, and its index in it
    ends_at: float | None = None  # end of its walltime, seconds since 1970
    idle_window_seconds: float = IDLE_WINDOW_SECONDS
    queued_seconds: float = 0.0  # that it waited in its grid's queue

    def idle_limit(self, most: float | None, worked_seconds: float) -> float | None:
        """Seconds without work after which it leaves, at most `most`; None: never.

        `worked_seconds` is how long it had work so far.
        """
        if most is None:
            return None
        earned = _IDLE_EARNED_SHARE * worked_seconds
        return min(most, max(_LEAST_IDLE_SECONDS, self.queued_seconds + earned))

    def time_left(self, now: float) -> float | None:
        """Seconds left for work; None without a walltime."""
        return None if self.ends_at is None else max(0.0, self.ends_at - LEAVING_SECONDS - now)


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """Successes and failures of the replicas on a pilot's node."""

    successes: int = 0
    failures_in_row: int = 0
    longest_seconds: float = 0.0  # wall time of the longest success
    ask_at: float = 0.0  # earliest next request for work, seconds on the caller's clock
    is_leaving: bool = False

    def after(self, reports: Iterable[Report], now: float) -> NodeRecord:
        """Record with these ended replicas added."""
        record = self
        for report in reports:
            record = record._after_one(report, now)
        return record

    def _after_one(self, report: Report, now: float) -> NodeRecord:
        if report.how == "success":
            longest = max(self.longest_seconds, report.wall_seconds)
            return NodeRecord(self.successes + 1, 0, longest, 0.0, self.is_leaving)
        failures = self.failures_in_row + 1
        ask_at = now + _penalty(failures, has_succeeded=self.successes > 0)
        leaving = self.is_leaving or report.reason == LOW_CPU
        return NodeRecord(self.successes, failures, self.longest_seconds, ask_at, leaving)

    def wanted(self, want: int, held: int, now: float) -> int:
        """Number of replicas to ask for, at most `want`; one by one until the first success."""
        if now < self.ask_at:
            return 0
        if self.failures_in_row or not self.successes:
            return min(want, 1) if not held else 0
        return want

    def is_over(self, time_left: float | None) -> bool:
        """True if no more work should be asked for, because it would outlive `time_left`."""
        return self.is_leaving or (time_left is not None and time_left <= self.longest_seconds)


def _penalty(failures: int, *, has_succeeded: bool) -> float:
    """Seconds to wait after `failures` in a row."""
    if has_succeeded:
        return _PENALTIES.seconds(failures - 1)
    return _UNPROVEN_PENALTIES.seconds(failures)
