"""A BOT's curves, as in Fig. 6 of the paper: jobs left, what each grid gives, a table.  Pure.

They are made of what `GET /bots/ID/history` tells, and are told twice: as points for the script,
which draws them with axes, and as lines that browsers draw without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gridbot_server.models.responses.history import BotHistory, GridCurves

WIDTH, HEIGHT = 1000.0, 100.0  # of a drawing
_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class DrawnLine:
    """One line of a curve."""

    name: str
    number: int  # of its colour, from 1 to 6
    points: str  # of an SVG polyline


@dataclass(frozen=True, slots=True)
class DrawnCurve:
    """A curve in both forms."""

    title: str
    lines: Sequence[DrawnLine]
    tail_x: float | None  # where the tail phase begins, in the drawing
    most: float  # the greatest value
    begin: int  # seconds since 1970
    end: int
    data: str  # JSON for the script

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to be drawn."""
        return self.begin == self.end or not self.most


@dataclass(frozen=True, slots=True)
class GridTotals:
    """What a grid gave to a BOT."""

    grid: str
    done: int
    sent: int
    errors: int
    expired: int
    cpu_seconds: float


def left(history: BotHistory, tail: float | None, marks: Sequence[float]) -> DrawnCurve:
    """Return the jobs that are left over time (Fig. 6a)."""
    return _curve("Jobs left", history.times, {"jobs left": history.left}, tail, marks)


def throughput(history: BotHistory, tail: float | None, marks: Sequence[float]) -> DrawnCurve:
    """Return the jobs that each grid finishes in a minute (Fig. 6b)."""
    per_minute = _MINUTE / history.step_seconds
    series = {
        grid_name(grid.grid): [round(done * per_minute, 3) for done in grid.done]
        for grid in history.grids
        if any(grid.done)
    }
    return _curve("Jobs done per minute, by grid", history.times, series, tail, marks)


def totals(history: BotHistory) -> list[GridTotals]:
    """Return what each grid gave, the one with most jobs first (Fig. 6c)."""
    found = [_total(grid) for grid in history.grids]
    return sorted(
        (item for item in found if item.sent or item.done or item.errors),
        key=lambda item: (-item.done, item.grid),
    )


def grid_name(grid: str | None) -> str:
    """Return what a grid is called on pages."""
    return grid or "no pilots"


def _total(grid: GridCurves) -> GridTotals:
    return GridTotals(
        grid_name(grid.grid), sum(grid.done), sum(grid.sent), sum(grid.errors), sum(grid.expired),
        sum(grid.cpu_seconds),
    )  # fmt: skip


def _curve(
    title: str,
    times: Sequence[int],
    series: Mapping[str, Sequence[float]],
    tail: float | None,
    marks: Sequence[float],
) -> DrawnCurve:
    begin, end = (times[0], times[-1]) if times else (0, 0)
    most = max((max(values, default=0) for values in series.values()), default=0)
    lines = [
        DrawnLine(name, number % 6 + 1, _points(times, values, most))
        for number, (name, values) in enumerate(series.items())
    ]
    data = {
        "data": [list(times), *(list(values) for values in series.values())],
        "series": list(series),
        "tail": tail,
        "marks": list(marks),
    }
    tail_x = None
    if tail is not None and end > begin:
        tail_x = round(WIDTH * min(1.0, max(0.0, (tail - begin) / (end - begin))), 1)
    return DrawnCurve(title, lines, tail_x, most, begin, end, json.dumps(data))


def _points(times: Sequence[int], values: Sequence[float], most: float) -> str:
    span = times[-1] - times[0] if times else 0
    if not span or not most:
        return ""
    return " ".join(
        f"{WIDTH * (time - times[0]) / span:.1f},{HEIGHT - HEIGHT * value / most:.1f}"
        for time, value in zip(times, values, strict=True)
    )
