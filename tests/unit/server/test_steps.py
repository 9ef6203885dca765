"""Which steps a curve has, and from which rows they are read."""

from itertools import pairwise

import pytest

from gridbot_server.errors import RequestError
from gridbot_server.history.steps import (
    DAY,
    HOUR,
    KEPT,
    MINUTE,
    MOST_STEPS,
    STEPS,
    Piece,
    Sums,
    pieces,
    span,
)

NOW = 20_000 * DAY + 5 * HOUR + 7 * MINUTE


@pytest.mark.parametrize(
    ("seconds", "step"),
    [
        (1, MINUTE),
        (6 * HOUR, MINUTE),
        (DAY, 300),
        (DAY + HOUR, 300),
        (4 * DAY, HOUR),
        (14 * DAY, HOUR),
        (90 * DAY, 6 * HOUR),
        (1000 * DAY, DAY),
    ],
)
def test_a_curve_has_some_hundred_steps(seconds: int, step: int) -> None:
    wanted = span(NOW - seconds, NOW, None, NOW)
    assert wanted.step == step
    assert wanted.begin <= NOW - seconds < wanted.begin + step
    assert wanted.end - step < NOW <= wanted.end


def test_what_is_kept_in_longer_steps_only_is_shown_in_those() -> None:
    month_ago = NOW - 30 * DAY
    assert span(month_ago, month_ago + HOUR, None, NOW).step == HOUR
    with pytest.raises(RequestError, match="kept for 7 days, take 3600"):
        span(month_ago, month_ago + HOUR, MINUTE, NOW)
    with pytest.raises(RequestError, match="kept for 366 days, take 86400"):
        span(NOW - 500 * DAY, NOW, HOUR, NOW)


def test_a_curve_of_many_years_ends_now() -> None:
    wanted = span(0, NOW, None, NOW)
    assert (len(wanted.times), wanted.end) == (MOST_STEPS, 20_001 * DAY)


@pytest.mark.parametrize(
    ("begin", "end", "step", "why"),
    [
        (5, 5, None, "end: expected a time after begin"),
        (0, 60, 7, "step: expected one of 60, 300"),
        (NOW - 6 * DAY, NOW, MINUTE, "more than 2000; take a longer step"),
    ],
)
def test_a_wrong_wish_is_refused(begin: int, end: int, step: int | None, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        span(begin, end, step, float(end if end < NOW else NOW))


@pytest.mark.parametrize("step", STEPS)
def test_each_moment_of_a_curve_is_read_once(step: int) -> None:
    made = Sums(NOW, hours=NOW // HOUR * HOUR - HOUR, days=NOW // DAY * DAY)
    wanted = span(NOW - (6 * DAY if step > 300 else HOUR), NOW, step, NOW)
    found = pieces(wanted, made)
    assert [piece.begin for piece in found[1:]] == [piece.end for piece in found[:-1]]
    assert (found[0].begin, found[-1].end) == (wanted.begin, wanted.end)
    assert all(piece.step <= step for piece in found)
    assert all(piece.step == MINUTE for piece in found if piece.end > made.hours)


def test_days_are_read_where_they_are_made_then_hours_then_minutes() -> None:
    today = NOW // DAY * DAY
    made = Sums(NOW, hours=today + 4 * HOUR, days=today)
    assert pieces(span(today - DAY, NOW, DAY, NOW), made) == [
        Piece(DAY, today - DAY, today),
        Piece(HOUR, today, today + 4 * HOUR),
        Piece(MINUTE, today + 4 * HOUR, today + DAY),
    ]


def test_steps_are_multiples_of_each_other_and_what_is_kept_is_longer_than_they_are() -> None:
    assert all(longer % shorter == 0 for shorter, longer in pairwise(STEPS))
    assert all(seconds > MOST_STEPS * step / 4 for step, seconds in KEPT.items())
