from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridbot_client.protocol.messages import MAX_AHEAD, MAX_WANT, Ahead, Resources
from gridbot_client.work.pace import LOOKAHEAD_SECONDS, Pace

ONE_CPU = Resources(cpus=1)


def pace(*seconds: float, cpus: int = 2, resources: Resources = ONE_CPU) -> Pace:
    made = Pace(cpus)
    for each in seconds:
        made.ended(7, resources, each)
    return made


def test_before_its_first_success_nothing_is_known_of_a_bot() -> None:
    assert pace().ahead() == ()
    assert pace().seconds(7) is None


def test_a_second_of_work_is_held_for_each_core_beside_what_runs() -> None:
    assert pace(0.1).ahead() == (Ahead(7, 2 + 2 * 10),)


def test_of_long_replicas_one_is_held_for_all_cores_beside_what_runs() -> None:
    assert pace(3600.0).ahead() == (Ahead(7, 2 + 1),)


def test_wide_replicas_share_the_cores() -> None:
    assert pace(0.5, cpus=8, resources=Resources(cpus=4)).ahead() == (Ahead(7, 2 + 2 * 2),)


def test_work_for_two_slow_round_trips_is_held() -> None:
    distant = pace(1.0)
    distant.answered(3.0)
    assert distant.lookahead_seconds == 6.0
    assert distant.ahead() == (Ahead(7, 2 + 2 * 6),)


def test_a_near_server_changes_nothing() -> None:
    near = pace(1.0)
    near.answered(0.01)
    assert near.lookahead_seconds == LOOKAHEAD_SECONDS


def test_an_estimate_rises_at_once_and_falls_slowly() -> None:
    assert pace(0.1, 60.0).seconds(7) == 60.0
    assert 50.0 < (pace(60.0, 0.1).seconds(7) or 0) < 60.0
    assert pace(60.0, *[0.1] * 100).seconds(7) == pytest.approx(0.1, rel=0.1)


def test_the_bots_seen_last_are_kept() -> None:
    many = Pace(1)
    for bot in range(MAX_AHEAD + 1):
        many.ended(bot, ONE_CPU, 1.0)
    assert [item.bot for item in many.ahead()] == list(range(1, MAX_AHEAD + 1))


@given(st.floats(0, 1e9), st.integers(1, 10_000), st.integers(1, 64))
def test_whatever_was_measured_the_protocol_can_carry_it(
    seconds: float, cpus: int, wanted: int
) -> None:
    (found,) = pace(seconds, cpus=cpus, resources=Resources(cpus=wanted)).ahead()
    assert 1 <= found.replicas <= MAX_WANT


@pytest.fixture
def often() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("often")
def test_replicas_may_end_while_the_client_asks() -> None:
    made, is_over = Pace(2), threading.Event()

    def end_replicas() -> None:
        bot = 0
        while not is_over.is_set():
            bot += 1
            made.ended(bot, ONE_CPU, 1.0)

    thread = threading.Thread(target=end_replicas)
    thread.start()
    try:
        for _ in range(2000):
            known = made.ahead()
            assert len(known) <= MAX_AHEAD
            assert {made.seconds(each.bot) for each in known} <= {None, 1.0}
    finally:
        is_over.set()
        thread.join()
