"""Curves of BOTs, as in Fig. 6 of the paper: jobs left, what each grid gives, a table; of the
server, and of pilots.  Pure.

They are made of what `GET /bots/ID/history` and `GET /history` tell, and are told twice: as points
for the script, which draws them with axes, and as lines that browsers draw without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gridbot_server.models.responses.history import BotHistory, GridCurves, ServerHistory

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


def of_server(history: ServerHistory) -> list[DrawnCurve]:
    """Return how much there was to do, what was done, and how late cycles were."""
    per_minute = _MINUTE / history.step_seconds
    work = {
        words: _figure(history, name)
        for name, words in (("jobs_unsent", "unsent"), ("replicas_running", "in progress"))
    }
    rates: dict[str, list[float | None]] = {
        words: [
            round(per_minute * sum(at[index] for at in series), 3)
            for index in range(len(history.times))
        ]
        for words, series in (
            ("replicas sent", [grid.sent for grid in history.grids]),
            ("jobs done", [grid.done for grid in history.grids]),
        )
    }
    asked = _figure(history, "requests", "work")
    rates["requests for work"] = [round(per_minute * (value or 0), 3) for value in asked]
    lags = {item.label or "": item.values for item in history.figures if item.name == "lag_seconds"}
    drawn = [("Replicas", work), ("Per minute", rates), ("Lag of the cycles, seconds", lags)]
    return [_since_known(title, history, series) for title, series in drawn]


def pilots(history: ServerHistory) -> DrawnCurve:
    """Return how many pilots of each grid were heard of."""
    series: dict[str, list[float | None]] = {}
    for item in history.figures:
        if item.label and item.name in ("hosts_working", "hosts_idle", "hosts_silent"):
            so_far = series.get(item.label, [None] * len(item.values))
            series[item.label] = [
                None if old is None and new is None else (old or 0) + (new or 0)
                for old, new in zip(so_far, item.values, strict=True)
            ]
    return _since_known("Pilots, by grid", history, series)


def _since_known(
    title: str, history: ServerHistory, series: Mapping[str, Sequence[float | None]]
) -> DrawnCurve:
    """Return a curve that begins where somebody looked first: a server may be young."""
    looked_at = [
        place
        for item in history.figures
        for place, value in enumerate(item.values)
        if value is not None
    ]
    first = min(looked_at, default=0)
    cut = {name: values[first:] for name, values in series.items()}
    return _curve(title, history.times[first:], cut)


def _figure(history: ServerHistory, name: str, label: str | None = None) -> list[float | None]:
    """Return a figure of the server's, where it was looked at."""
    found = (item.values for item in history.figures if (item.name, item.label) == (name, label))
    return next(found, [None] * len(history.times))


def totals(history: BotHistory | ServerHistory) -> list[GridTotals]:
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
    series: Mapping[str, Sequence[float | None]],
    tail: float | None = None,
    marks: Sequence[float] = (),
) -> DrawnCurve:
    begin, end = (times[0], times[-1]) if times else (0, 0)
    most = max((value or 0 for values in series.values() for value in values), default=0)
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


def _points(times: Sequence[int], values: Sequence[float | None], most: float) -> str:
    span = times[-1] - times[0] if times else 0
    if not span or not most:
        return ""
    return " ".join(
        f"{WIDTH * (time - times[0]) / span:.1f},{HEIGHT - HEIGHT * value / most:.1f}"
        for time, value in zip(times, values, strict=True)
        if value is not None
    )
