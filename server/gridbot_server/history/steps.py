"""Which steps a curve has, and from which rows they are read.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gridbot_server.errors import RequestError

MINUTE, HOUR, DAY = 60, 3600, 86400  # the steps that are stored, in seconds
# Those that are shown: all begin with the epoch, so that each lies in one of the next longer ones.
STEPS = (MINUTE, 300, 900, HOUR, 6 * HOUR, DAY)
# For how long minutes and hours are kept; days are for ever.
KEPT = {MINUTE: 7 * DAY, HOUR: 366 * DAY}
MOST_STEPS = 2000  # in one answer
# A curve that is no wider than a screen: of what may be chosen, the shortest with so many steps.
_FEW_STEPS = 400
_MOST_OF_MINUTES = 1.1 * DAY  # of which minutes are read unasked: each is a row of each grid


class Piece(NamedTuple):
    """Rows of one stored step, from `begin` to before `end`, in seconds since the epoch."""

    step: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Sums:
    """Until when hours and days are made, and the time, in seconds since the epoch."""

    now: float
    hours: int
    days: int


@dataclass(frozen=True, slots=True)
class Span:
    """The steps of a curve: multiples of `step`, in seconds since the epoch."""

    begin: int
    end: int
    step: int

    @property
    def times(self) -> range:
        """When its steps begin."""
        return range(self.begin, self.end, self.step)


def span(begin: float, end: float, step: int | None, now: float) -> Span:
    """Return steps that cover a time; without `step`, of a length that makes a few hundred.

    Raises RequestError for a step that is none, for more steps than one answer holds, and for what
    is kept in longer steps only.
    """
    if step is not None and step not in STEPS:
        raise RequestError(f"step: expected one of {', '.join(map(str, STEPS))}, got {step}")
    if end <= begin:
        raise RequestError(f"end: expected a time after begin, {begin:.0f}, got {end:.0f}")
    shortest = _shortest(now - begin)
    if step is not None and step < shortest:
        days = KEPT[MINUTE if step < HOUR else HOUR] // DAY
        raise RequestError(f"step: such short steps are kept for {days} days, take {shortest}")
    if end - begin > _MOST_OF_MINUTES:
        shortest = max(shortest, HOUR)
    lengths = [length for length in STEPS if length >= shortest] if step is None else [step]
    few = (length for length in lengths if (end - begin) / length <= _FEW_STEPS)
    length = next(few, lengths[-1])
    first, last = int(begin // length), int(-(-end // length))
    if last - first > MOST_STEPS:
        if step is None:
            first = last - MOST_STEPS
        else:
            raise RequestError(
                f"step: {last - first} steps of {length} s, more than {MOST_STEPS};"
                " take a longer step or less time"
            )
    return Span(first * length, last * length, length)


def _shortest(age: float) -> int:
    """Return the shortest step of what is that old, in seconds."""
    if age > KEPT[HOUR]:
        return DAY
    return HOUR if age > KEPT[MINUTE] else MINUTE


def pieces(wanted: Span, sums: Sums) -> Sequence[Piece]:
    """Return the rows that hold these steps: of the longest that do, then behind the last sums."""
    hours_until, days_until = sums.hours, min(sums.days, sums.hours)
    if wanted.step < HOUR:
        bounds = [(MINUTE, wanted.begin)]
    elif wanted.step < DAY:
        bounds = [(HOUR, wanted.begin), (MINUTE, hours_until)]
    else:
        bounds = [(DAY, wanted.begin), (HOUR, days_until), (MINUTE, hours_until)]
    ends = [begin for _, begin in bounds[1:]] + [wanted.end]
    found = [
        Piece(step, max(begin, wanted.begin), min(end, wanted.end))
        for (step, begin), end in zip(bounds, ends, strict=True)
    ]
    return [piece for piece in found if piece.begin < piece.end]
