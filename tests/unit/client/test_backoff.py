"""Claims about the wait before the next try; failures and chance are given by the test."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridbot_client.backoff import (
    REQUESTS,
    REVOKED_SECONDS,
    BackOff,
    FailedRequests,
    poll_seconds,
)

HOUR, DAY = 3600.0, 86_400.0
chances = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("failures", "full"),
    [(1, 1), (2, 2), (3, 4), (12, 2048), (13, HOUR), (31, HOUR), (32, HOUR), (5000, HOUR)],
)
def test_the_delay_doubles_with_each_failure_up_to_an_hour(failures: int, full: float) -> None:
    assert REQUESTS.seconds(failures) == full / 2
    assert REQUESTS.seconds(failures, chance=0.5) == full * 3 / 4


@given(st.integers(1, 5000), chances)
def test_a_delay_is_spread_over_the_upper_half_of_its_range(failures: int, chance: float) -> None:
    least = REQUESTS.seconds(failures)
    assert least <= REQUESTS.seconds(failures, chance) <= 2 * least


@pytest.mark.parametrize(
    ("failures", "asked", "waits"),
    [(1, 600.0, 600.0), (13, 600.0, HOUR / 2), (13, HOUR, HOUR), (1, DAY, DAY), (1, 9 * DAY, DAY)],
)
def test_what_the_server_asks_for_is_the_least_wait_up_to_a_day(
    failures: int, asked: float, waits: float
) -> None:
    assert REQUESTS.seconds(failures, floor=asked) == waits


@given(st.integers(0, 100), chances, st.floats(0, DAY))
def test_chance_never_makes_a_client_come_sooner_than_asked(
    failures: int, chance: float, asked: float
) -> None:
    assert REQUESTS.seconds(failures, chance, floor=asked) >= asked


def test_clients_that_were_told_the_same_time_come_within_a_quarter_of_it() -> None:
    assert REQUESTS.seconds(1, chance=0.5, floor=600.0) == 675.0
    assert REQUESTS.seconds(1, chance=1.0, floor=600.0) == 750.0


class Refusal(Exception):
    retry_after = 600.0


def test_an_error_that_says_how_long_to_wait_is_heard() -> None:
    assert REQUESTS.after(Refusal(), 1, chance=0.0) == 600.0
    assert REQUESTS.after(OSError(), 1, chance=0.0) == REQUESTS.seconds(1)


def test_who_has_not_failed_does_not_pause() -> None:
    assert BackOff().seconds(0, chance=0.5) == 0.0


def test_without_chance_each_pause_is_the_least_that_it_may_be() -> None:
    rule = BackOff(least=60.0, most=1800.0)
    assert [rule.seconds(failures) for failures in (1, 2, 5, 6, 99)] == [60, 120, 960, 1800, 1800]


def test_polls_are_spread_by_a_quarter_around_the_time_asked_for() -> None:
    assert [poll_seconds(60.0, chance) for chance in (0.0, 0.5, 1.0)] == [45.0, 60.0, 75.0]


def test_a_revoked_client_asks_six_times_a_day() -> None:
    assert REVOKED_SECONDS == DAY / 6


def test_failures_in_a_row_are_counted_and_the_last_is_kept() -> None:
    once = FailedRequests().failed("away", now=1000.0, chance=0.0)
    assert once == FailedRequests(failures=1, until=1000.5, error="away")
    assert once.failed("busy", now=2000.0, chance=0.0) == FailedRequests(2, 2001.0, "busy")
    assert once.failed("busy", 2000.0, 0.0, floor=60.0) == FailedRequests(2, 2060.0, "busy")


@pytest.mark.parametrize(("now", "waits"), [(1000.0, 30.0), (1029.5, 0.5), (1030.0, 0), (9e9, 0)])
def test_a_client_waits_until_the_time_of_the_next_try(now: float, waits: float) -> None:
    assert FailedRequests(failures=3, until=1030.0).remaining(now) == waits


def test_who_has_not_failed_waits_for_nothing() -> None:
    assert FailedRequests().remaining(0.0) == 0.0


def test_a_clock_that_was_set_back_delays_no_longer_than_any_server_may_ask() -> None:
    longest = REQUESTS.seconds(1, chance=1.0, floor=9 * DAY)
    assert FailedRequests(failures=1, until=1e9).remaining(now=0.0) == longest
    assert FailedRequests(failures=1, until=longest).remaining(now=0.0) == longest
