"""`POST /bots/ID/what-if`: when a BOT is likely to end, also under another policy."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from gridbot_server.models.responses import ResponseModel


class FigureRange(ResponseModel):
    """A figure over all simulations that ended."""

    median: float
    low: float
    """Of the 80 % range."""

    high: float


class PredictedFigures(ResponseModel):
    """What is still to come of a BOT; null: no simulation ended."""

    left_seconds: FigureRange | None
    """Until its end."""

    tail_seconds: FigureRange | None
    """In its tail phase."""

    replicas: FigureRange | None
    """That are sent."""

    speculative: FigureRange | None
    """Of them, speculative copies."""

    failed: FigureRange | None
    """Jobs that fail for good."""

    cpu_hours: FigureRange | None
    """Of all replicas, also of those in progress now."""


class PredictedRun(ResponseModel):
    """One simulation."""

    seed: int
    has_ended: bool
    why_not: str
    """Why it did not end; "" if it did."""

    left_seconds: float | None
    tail_seconds: float | None
    replicas: int
    speculative: int
    failed: int
    cpu_hours: float
    decisions: str
    """Digest of who got what, in order: equal decisions, equal digests."""


class PredictedRuns(ResponseModel):
    """Simulations under one policy."""

    figures: PredictedFigures
    runs: list[PredictedRun]


class FigureDifference(ResponseModel):
    """How much more a figure is under the tried policy, seed by seed."""

    seeds: int
    """Under which both simulations ended."""

    mean: float
    low: float | None
    """Of its interval; null with too few seeds."""

    high: float | None
    percent: float | None
    verdict: Literal["real", "open", "too few seeds"]
    """`open`: it may be chance."""

    seeds_wanted: int | None
    """That would tell; null if they are too many."""


class FigureDifferences(ResponseModel):
    """The tried policy against the present one; null: there is nothing to compare."""

    left_seconds: FigureDifference | None
    tail_seconds: FigureDifference | None
    replicas: FigureDifference | None
    speculative: FigureDifference | None
    failed: FigureDifference | None
    cpu_hours: FigureDifference | None


class Prediction(ResponseModel):
    """When a BOT is likely to end: the same for the same state of the server and the same seeds."""

    bot: int
    as_of: datetime
    policy_version: int
    """Of the present policy."""

    jobs_left: int
    hosts: int
    """That can run it, policies excepted."""

    seeds: int
    """Simulations under each policy; fewer than asked for if many jobs are left."""

    verdict: str
    """In a sentence without its full stop."""

    now: PredictedRuns
    """Under the present policy."""

    tried: PredictedRuns | None
    """Under the policy that was given; null if none was."""

    differences: FigureDifferences | None
    sooner: int | None
    """Seeds under which it ends sooner with the tried policy."""

    assumes: list[str]
    """What it rests on."""

    left_out: list[str]
    """What of this BOT is not simulated."""
