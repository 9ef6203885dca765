"""Claims about who is let in when more come than can be served; time and chance are the test's."""

from __future__ import annotations

from itertools import cycle

import pytest

from gridbot_server.dispatch.engine import BATCH_REQUESTS
from gridbot_server.overload.admission import LEAST_SECONDS, MOST_SECONDS, Admission, QueueLimits

BOUNDS = QueueLimits(asking=4, reporting=8)  # two requests fill a transaction


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


def answer(admission: Admission, *times: float) -> None:
    """Answer one request at each of these times."""
    for now in times:
        admission.end(now)


def told(admission: Admission, now: float, count: int) -> list[int]:
    """The seconds that each of so many refused clients is asked to wait."""
    return [admission.retry_seconds(now) for _ in range(count)]


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


@pytest.mark.parametrize(("has_reports", "transactions"), [(False, 2), (True, 4)])
def test_by_default_two_full_transactions_may_wait_and_two_more_with_reports(
    has_reports: bool, transactions: int
) -> None:
    admission, taken = Admission(0.0), 0
    while admission.admits(has_reports):
        admission.begin()
        taken += 1
    assert taken == transactions * BATCH_REQUESTS


def test_a_new_process_is_taken_to_serve_250_requests_a_second() -> None:
    assert told(full(waiting=8), 0.0, 1001)[-2:] == [13, 14]  # 5 s, and a place per 1/125 s


def test_the_rate_is_measured_over_a_second_in_which_a_transaction_was_served() -> None:
    admission = full(waiting=8)
    answer(admission, 0.5, 0.999)
    assert told(admission, 0.999, 3)[-1] == 6  # the second is not over
    admission = full(waiting=8)
    answer(admission, 0.5, 0.999, 1.0)
    assert told(admission, 1.0, 3)[-1] == 5 + 2  # 3 a second, of which half is for the refused
    admission = full(waiting=8)
    answer(admission, 1.0)
    assert told(admission, 1.0, 3)[-1] == 6  # one answer is no full transaction
    answer(admission, 1.0)
    assert told(admission, 1.0, 3)[-1] == 5 + 6  # 2 a second; six are in the row


def test_each_second_is_measured_by_itself() -> None:
    admission = full(waiting=8)
    answer(admission, 1.0, 1.0, 1.25, 1.5, 1.75, 2.0)
    assert told(admission, 2.0, 30)[-1] == 5 + 15


def test_a_process_counts_as_busy_while_a_full_transaction_waits() -> None:
    admission = full(waiting=4)
    answer(admission, 1.0, 1.0)
    assert told(admission, 1.0, 3)[-1] == 5 + 3


def test_the_measurement_begins_anew_after_a_quiet_time() -> None:
    admission = full(waiting=1)
    answer(admission, 100.0)
    for _ in range(4):
        admission.begin()
    answer(admission, 100.5, 101.0)
    assert told(admission, 101.0, 3)[-1] == 5 + 3


def test_refused_clients_come_back_at_half_the_rate_that_can_be_served() -> None:
    admission = busy(per_second=100, seconds=3)
    waits = told(admission, 3.0, 1000)
    assert waits == [5 + 1 + place // 50 for place in range(1000)]


def test_the_row_is_left_as_time_passes() -> None:
    admission = busy(per_second=100, seconds=3)
    later = told(admission, 3.0, 1000)[-1]
    assert admission.retry_seconds(13.0) == pytest.approx(later - 10, abs=1)
    assert admission.retry_seconds(1000.0) <= LEAST_SECONDS + 1


def test_a_slow_server_asks_for_more_time_than_a_fast_one() -> None:
    slow, fast = busy(per_second=20, seconds=3), busy(per_second=2000, seconds=3)
    assert told(slow, 3.0, 500)[-1] > 5 * told(fast, 3.0, 500)[-1]


def test_a_quiet_time_does_not_make_the_server_look_slow() -> None:
    quiet, new = full(waiting=0), full(waiting=0)
    for second in range(60):
        quiet.begin()
        quiet.end(float(second))
    assert told(quiet, 60.0, 5000) == told(new, 60.0, 5000)


def test_a_crowd_beyond_the_longest_wait_is_spread_over_it() -> None:
    chances = cycle([0.0, 0.25, 0.999])
    admission = Admission(0.0, BOUNDS, lambda: next(chances))
    waits = told(admission, 0.0, 200_000)
    beyond = waits[-3:]
    assert max(waits) <= MOST_SECONDS
    assert len(set(beyond)) == 3
    assert max(beyond) - min(beyond) > 0.9 * (MOST_SECONDS - LEAST_SECONDS)


@pytest.mark.parametrize(("chance", "waits"), [(0.0, 5), (0.5, 453), (1.0, 900)])
def test_the_longest_wait_is_a_quarter_of_an_hour(chance: float, waits: int) -> None:
    admission = Admission(0.0, BOUNDS, lambda: chance)
    for _ in range(8):
        admission.begin()
    answer(admission, 1.0, 1.0)  # one place a second
    assert told(admission, 1.0, 896)[-2:] == [900, waits]


def test_answers_that_come_in_batches_count_as_if_they_came_one_by_one() -> None:
    batches, singly = full(waiting=8), busy(per_second=1, seconds=40)
    for second in range(0, 40, 4):
        for _ in range(4):
            batches.begin()
            batches.end(float(second + 4))
    assert told(batches, 40.0, 50)[-1] == pytest.approx(told(singly, 40.0, 50)[-1], rel=0.3)


def test_a_stuck_database_is_taken_to_serve_one_request_a_second() -> None:
    admission = full(waiting=8)
    answer(admission, 3600.0, 3600.0)
    assert told(admission, 3600.0, 2) == [5 + 2, 5 + 4]
