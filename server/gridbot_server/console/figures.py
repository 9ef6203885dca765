"""The geometry of what pages draw: bars and time lines, in SVG's own units.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

WIDTH = 1000.0  # of every drawing


@dataclass(frozen=True, slots=True)
class BarPart:
    """A piece of a bar."""

    kind: str
    label: str
    count: int
    x: float
    width: float


class Counted(Protocol):
    """Jobs of a BOT, by what has become of them."""

    @property
    def jobs_total(self) -> int:
        """All."""

    @property
    def jobs_done(self) -> int:
        """With a result."""

    @property
    def jobs_failed(self) -> int:
        """Failed for good."""

    @property
    def jobs_in_progress(self) -> int:
        """With a host that is heard of."""

    @property
    def jobs_silent(self) -> int:
        """With silent hosts alone."""

    @property
    def jobs_waiting(self) -> int:
        """With nobody."""


def parts(bot: Counted) -> list[BarPart]:
    """Return the pieces of a BOT's bar: what has become of its jobs, then the rest."""
    counts = (
        ("done", "done", bot.jobs_done),
        ("failed", "failed", bot.jobs_failed),
        ("running", "in progress", bot.jobs_in_progress),
        ("silent", "at silent hosts", bot.jobs_silent),
        ("waiting", "waiting", bot.jobs_waiting),
    )
    return bar(counts, bot.jobs_total)


def bar(counts: Iterable[tuple[str, str, int]], total: int) -> list[BarPart]:
    """Return the pieces of a bar: each of a kind, with a label and its count."""
    found, x = [], 0.0
    for kind, label, count in counts:
        width = WIDTH * max(0, count) / total if total else 0.0
        found.append(BarPart(kind, label, count, round(x, 1), round(width, 1)))
        x += width
    return found


class Lasting(Protocol):
    """A replica in progress."""

    @property
    def seconds(self) -> float:
        """Since it was sent."""

    @property
    def is_silent(self) -> bool:
        """Whether its host is not heard of."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A replica on the time line, which ends now, at the right."""

    replica: Lasting
    kind: str
    x: float
    width: float
    usual_x: float | None  # where it would have begun, had it taken the usual time


@dataclass(frozen=True, slots=True)
class TimeLine:
    """Replicas in progress over the time since the first of them was sent."""

    span: float  # seconds
    lanes: Sequence[Lane]


def timeline(replicas: Sequence[Lasting], usual: float | None) -> TimeLine:
    """Place replicas on a time line; those that take much longer than usual stand out."""
    span = max((replica.seconds for replica in replicas), default=0.0)
    scale = WIDTH / span if span > 0 else 0.0
    return TimeLine(span, [_lane(replica, usual, span, scale) for replica in replicas])


def _lane(replica: Lasting, usual: float | None, span: float, scale: float) -> Lane:
    width = max(4.0, replica.seconds * scale)
    is_late = usual is not None and replica.seconds > 2 * usual
    kind = "silent" if replica.is_silent else "late" if is_late else "running"
    mark = WIDTH - usual * scale if usual and usual < span else None
    return Lane(replica, kind, round(WIDTH - width, 1), round(width, 1), mark and round(mark, 1))


@dataclass(frozen=True, slots=True)
class ReplicaSpan:
    """A replica of a job on its time line."""

    kind: str
    seconds: float
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class JobLine:
    """The replicas of a job, over the time from the first of them to the end of the last."""

    begin: datetime | None
    span: float  # seconds
    lanes: Sequence[ReplicaSpan]


def spans(pieces: Sequence[tuple[str, datetime, datetime | None]], now: datetime) -> JobLine:
    """Place replicas, by how they ended and when, on a time line; those without an end run now."""
    if not pieces:
        return JobLine(None, 0.0, ())
    first = min(sent for _, sent, _ in pieces)
    last = max(ended or now for _, _, ended in pieces)
    whole = max(0.001, (last - first).total_seconds())
    scale = WIDTH / whole
    lanes = []
    for kind, sent, ended in pieces:
        seconds = max(0.0, ((ended or now) - sent).total_seconds())
        width = max(4.0, seconds * scale)
        x = min((sent - first).total_seconds() * scale, WIDTH - width)
        lanes.append(ReplicaSpan(kind, seconds, round(x, 1), round(width, 1)))
    return JobLine(first, whole, lanes)
