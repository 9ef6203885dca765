"""Claims about when a client is silent, by the interval that it was told."""

from __future__ import annotations

import random

import pytest

from gridbot_server.cycles.silence import STOCK_CONTACT_SECONDS, patience
from gridbot_server.dispatch.replies import MAX_IDLE_SECONDS, contact_seconds, idle_delay


def test_a_client_is_silent_after_three_intervals_of_its_own() -> None:
    assert patience(100.0, False, least=60.0) == 300.0


def test_a_short_interval_gives_nobody_away_before_the_least_time() -> None:
    assert patience(1.5, False, least=60.0) == 60.0


def test_a_client_that_was_told_no_interval_is_never_silent() -> None:
    assert patience(None, False, least=60.0) is None
    assert patience(None, True, least=60.0) is None


def test_a_busy_stock_client_may_be_quiet_for_three_of_the_times_it_is_told() -> None:
    assert patience(1.5, True, least=60.0) == 3 * STOCK_CONTACT_SECONDS
    assert patience(5000.0, True, least=60.0) == 15_000.0


@pytest.mark.parametrize("clients", [0, 1, 1000, 10**6])
def test_no_client_is_told_to_ask_later_than_it_is_expected(clients: int) -> None:
    chance = random.Random(7)
    # The client adds a quarter at most, as `poll_seconds` says.
    told = max(idle_delay(clients, chance) for _ in range(100))
    assert told * 1.25 <= contact_seconds(clients) <= MAX_IDLE_SECONDS * 1.25**2
