"""What happened over time, as curves: each list has a value for each of `times`."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from gridbot_server.models.responses import ResponseModel


class GridCurves(ResponseModel):
    """What happened on one grid in each step."""

    grid: str | None
    """Null: machines that are no pilots, and what happens on no machine."""

    added: list[int]
    """Jobs that came in."""

    sent: list[int]
    """Replicas sent."""

    succeeded: list[int]
    """Replicas reported as successes."""

    errors: list[int]
    """Replicas reported as failures."""

    expired: list[int]
    """Replicas whose deadline passed."""

    relinquished: list[int]
    """Replicas that came back unanswered before their deadline."""

    cancelled: list[int]
    """Replicas that nobody wanted any more."""

    late: list[int]
    """Of `succeeded`: those that had expired or come back."""

    void: list[int]
    """Answers that count no more, since a newer version of the manifest runs."""

    done: list[int]
    """Jobs done, on the grid of the canonical replica."""

    failed: list[int]
    """Jobs that failed for good, on no grid."""

    retried: list[int]
    """Of those: tried again."""

    recalled: list[int]
    """Provisional outcomes that were recalled, on no grid."""

    cpu_seconds: list[float]
    """CPU seconds of the replicas that were reported."""


class FailureCurve(ResponseModel):
    """Failed replicas with one reason on one grid, in each step."""

    reason: str
    grid: str | None
    errors: list[int]


class FailureExample(ResponseModel):
    """A failed replica, as it was first seen of its reason."""

    reason: str
    at: datetime
    """When it was reported."""

    seq: int
    replica: int
    host: int
    grid: str | None
    exit_code: int | None
    stderr: str
    """Its last 2,000 characters."""


class SlowJob(ResponseModel):
    """A valid replica that ran long."""

    seq: int
    replica: int
    host: int
    grid: str | None
    wall_seconds: float
    """Seconds that it ran, by its host's clock."""

    cpu_seconds: float


class HostSession(ResponseModel):
    """A time in which a client on a host was heard of."""

    client: int
    grid: str | None
    began_at: datetime
    ended_at: datetime | None
    """When it was heard of last; null: it is still there."""

    why: Literal["left", "silent", "gone", "banned", "revoked", "expired"] | None
    """Why it ended: it left or its grid ended it; it had work and missed three contacts; it was
    idle and not heard of; it was banned; its key was revoked; its time as a pilot was over."""


class HostSessions(ResponseModel):
    """`GET /hosts/ID/sessions`: the latest first."""

    sessions: list[HostSession]


class FigureCurve(ResponseModel):
    """A figure of the server's own."""

    name: str
    """`jobs_unsent`, `replicas_running`, `hosts_working`, `lag_seconds`, `requests` and so on."""

    label: str | None
    """Of hosts the grid, null for machines that are no pilots; of lags the cycle; of requests the
    class."""

    values: list[float | None]
    """What was counted in each step, or the mean of what was seen; null: nobody looked."""


class BotHistory(ResponseModel):
    """`GET /bots/ID/history`: also of a BOT that was deleted."""

    id: int
    name: str
    step_seconds: int
    """Seconds of each step; the last one may not be over."""

    times: list[int]
    """When the steps begin, in seconds since the epoch: multiples of their length."""

    left: list[int]
    """Jobs without an outcome at the end of each step."""

    grids: list[GridCurves]
    failures: list[FailureCurve]
    examples: list[FailureExample]
    """One failed replica for each reason, up to 40."""

    slowest: list[SlowJob]
    """The ten valid replicas that ran longest."""

    created_at: datetime
    ended_at: datetime | None


class ServerHistory(ResponseModel):
    """`GET /history`: all BOTs together, and the server's own figures."""

    step_seconds: int
    """Seconds of each step; the last one may not be over."""

    times: list[int]
    """When the steps begin, in seconds since the epoch: multiples of their length."""

    grids: list[GridCurves]
    figures: list[FigureCurve]
