"""Claims about who is let in when more come than can be served; time and chance are the test's."""

from __future__ import annotations

from itertools import cycle

import pytest

from gridbot_server.overload.admission import LEAST_SECONDS, MOST_SECONDS, Admission, Bounds

BOUNDS = Bounds(asking=4, reporting=8)


def full(waiting: int, now: float = 0.0) -> Admission:
    """A process in which so many requests wait."""
    admission = Admission(now, BOUNDS, chance=lambda: 0.5)
    for _ in range(waiting):
        admission.begin()
    return admission


def busy(per_second: int, seconds: float) -> Admission:
    """A process that always has enough to do, and served so many requests per second till then."""
    admission = full(waiting=8)
    for number in range(int(per_second * seconds)):
        admission.begin()
        admission.end((number + 1) / per_second)
    return admission


@pytest.mark.parametrize(
    ("waiting", "asking", "reporting"), [(0, True, True), (3, True, True), (4, False, True),
                                         (7, False, True), (8, False, False)],
)  # fmt: skip
def test_requests_with_reports_are_taken_when_others_no_longer_are(
    waiting: int, asking: bool, reporting: bool
) -> None:
    admission = full(waiting)
    assert admission.admits(has_reports=False) is asking
    assert admission.admits(has_reports=True) is reporting


def test_an_answer_makes_room_for_a_request() -> None:
    admission = full(waiting=4)
    admission.end(1.0)
    assert admission.admits(has_reports=False)


def test_by_default_two_full_transactions_may_wait_and_reports_beyond() -> None:
    admission = Admission(0.0)
    for _ in range(Bounds().asking):
        assert admission.admits(has_reports=False)
        admission.begin()
    assert not admission.admits(has_reports=False)
    assert admission.admits(has_reports=True)


def test_refused_clients_come_back_at_half_the_rate_that_can_be_served() -> None:
    admission = busy(per_second=100, seconds=3)
    told = [admission.retry_seconds(3.0) for _ in range(1000)]
    assert told == sorted(told)
    assert LEAST_SECONDS < told[0] <= LEAST_SECONDS + 1
    assert told[-1] == LEAST_SECONDS + 1000 / 50
    assert max(told.count(second) for second in told) == 50


def test_the_row_is_left_as_time_passes() -> None:
    admission = busy(per_second=100, seconds=3)
    for _ in range(1000):
        later = admission.retry_seconds(3.0)
    assert admission.retry_seconds(13.0) == pytest.approx(later - 10, abs=1)
    assert admission.retry_seconds(1000.0) <= LEAST_SECONDS + 1


def test_a_slow_server_asks_for_more_time_than_a_fast_one() -> None:
    slow, fast = busy(per_second=20, seconds=3), busy(per_second=2000, seconds=3)
    told = [[admission.retry_seconds(3.0) for _ in range(500)] for admission in (slow, fast)]
    assert told[0][-1] > 5 * told[1][-1]


def test_a_quiet_time_does_not_make_the_server_look_slow() -> None:
    quiet, new = full(waiting=0), full(waiting=0)
    for second in range(60):
        quiet.begin()
        quiet.end(float(second))
    told = [[admission.retry_seconds(60.0) for _ in range(5000)] for admission in (quiet, new)]
    assert told[0] == told[1]


def test_a_crowd_beyond_the_longest_wait_is_spread_over_it() -> None:
    chances = cycle([0.0, 0.25, 0.999])
    admission = Admission(0.0, BOUNDS, lambda: next(chances))
    told = [admission.retry_seconds(0.0) for _ in range(200_000)]
    beyond = told[-3:]
    assert max(told) <= MOST_SECONDS
    assert len(set(beyond)) == 3
    assert max(beyond) - min(beyond) > 0.9 * (MOST_SECONDS - LEAST_SECONDS)


def test_answers_that_come_in_batches_count_as_if_they_came_one_by_one() -> None:
    batches, singly = full(waiting=8), busy(per_second=1, seconds=40)
    for second in range(0, 40, 4):
        for _ in range(4):
            batches.begin()
            batches.end(float(second + 4))
    told = [[admission.retry_seconds(40.0) for _ in range(50)] for admission in (batches, singly)]
    assert told[0][-1] == pytest.approx(told[1][-1], rel=0.3)


def test_a_stuck_database_still_gives_times_that_end() -> None:
    admission = full(waiting=8)
    admission.begin()
    admission.end(3600.0)
    assert LEAST_SECONDS < admission.retry_seconds(3600.0) <= MOST_SECONDS
