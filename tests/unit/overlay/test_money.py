"""Claims about prices and budgets of money: what counts, when, and that no pilot passes them."""

import random
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.overlay_factories import NOW, QUEUE, World, demand, grid, pilot, submits

from gridbot_overlay.decide.construct import GridView, plan
from gridbot_overlay.decide.model import Grid, PilotState
from gridbot_overlay.decide.money import MoneySpent, begin, cost, described, exhausted, spending

HOUR = 3600.0


def cloud(**changes: Any) -> Grid:
    return grid("cloud", **{"price": 1.0, "budget": 5.0, "walltime_seconds": 3600, **changes})


@pytest.mark.parametrize(
    ("seconds", "price", "money"),
    [(0.5, 0.6, 0.01), (60, 0.6, 0.01), (60.2, 3600.0, 61.0), (2 * HOUR, 0.096, 0.192), (9, 0, 0)],
)
def test_time_costs_by_the_second_and_a_minute_at_least(
    seconds: float, price: float, money: float
) -> None:
    assert cost(seconds, price) == pytest.approx(money)


def test_days_and_months_are_those_of_utc() -> None:
    now = datetime(2026, 3, 31, 23, 59, tzinfo=UTC).timestamp()
    assert datetime.fromtimestamp(begin("day", now), UTC) == datetime(2026, 3, 31, tzinfo=UTC)
    assert datetime.fromtimestamp(begin("month", now), UTC) == datetime(2026, 3, 1, tzinfo=UTC)
    assert begin("ever", now) == 0


def test_live_pilots_count_with_what_they_ran_and_reserve_the_rest() -> None:
    running = pilot(0, PilotState.RUNNING, started_at=NOW - HOUR / 2, price=2.0)
    queued = pilot(1, price=1.0)
    found = spending(cloud(), [running, queued], 3.0, NOW)
    assert found.spent == pytest.approx(4.0)
    assert found.reserved == pytest.approx(2.0)


def test_a_pilot_counts_in_the_period_in_which_it_was_submitted() -> None:
    yesterdays = pilot(0, PilotState.RUNNING, submitted_at=begin("day", NOW) - 1, price=1.0)
    assert spending(cloud(budget_period="day"), [yesterdays], 0.0, NOW) == MoneySpent()
    assert spending(cloud(budget_period="ever"), [yesterdays], 0.0, NOW).reserved > 0


@pytest.mark.parametrize(("spent", "pilots"), [(0.0, 5), (3.5, 1), (4.5, 0), (5.0, 0), (9.0, 0)])
def test_no_pilot_is_submitted_that_could_pass_the_budget_by_its_walltime(
    spent: float, pilots: int
) -> None:
    view = GridView(grid=cloud(), money=MoneySpent(spent=spent))
    found = plan([demand(unsent=50)], [view], QUEUE, NOW)
    assert submits(found).get("cloud", 0) == pilots


def test_a_used_up_budget_is_told_to_the_operator_and_to_those_whose_bots_wait() -> None:
    view = GridView(grid=cloud(budget=50.0, budget_period="day"), money=MoneySpent(spent=50.0))
    found = plan([demand(bot=7)], [view], QUEUE, NOW)
    words = "grid cloud has spent 50.00 of 50.00 this day"
    assert found.notes["cloud"] == words
    assert found.refusals[7] == {"cloud": words}


def test_what_is_left_and_reserved_is_said() -> None:
    found = described(cloud(), MoneySpent(spent=2.0, reserved=2.5))
    assert found == (
        "grid cloud has spent 2.00 of 5.00 in all; its pilots may spend 2.50 more;"
        " another pilot may cost 1.00"
    )
    assert described(cloud(budget=None), MoneySpent(spent=2.0)) == "grid cloud has spent 2.00"
    assert exhausted(cloud(), MoneySpent(spent=2.0)) == ""


def test_what_costs_money_comes_after_what_does_not() -> None:
    free = GridView(grid=grid("free"))
    found = plan([demand(unsent=7)], [GridView(grid=cloud(budget=None)), free], QUEUE, NOW)
    assert submits(found) == {"free": 7}


def test_a_policy_sees_the_price_of_a_core() -> None:
    policy = "GridPolicy = Grid.Price <= 0.25;"
    views = [GridView(grid=cloud(cpus=cores, memory_mb=8192)) for cores in (2, 4)]
    counts = [submits(plan([demand(policy=policy)], [view], QUEUE, NOW)) for view in views]
    assert counts == [{}, {"cloud": 3}]


@given(st.randoms(use_true_random=False), st.floats(0.5, 20.0))
def test_whatever_pilots_do_their_cost_stays_within_the_budget(
    chance: random.Random, budget: float
) -> None:
    """Prices, walltimes and ends differ; none runs longer than its walltime."""
    capped = cloud(budget=budget, price=chance.uniform(0.1, 3.0))
    world = World([capped])
    for _ in range(12):
        ended = [item for item in world.pilots if not item.is_live]
        spent = sum(
            cost(item.ended_at - item.started_at, item.price)
            for item in ended
            if item.started_at is not None and item.ended_at is not None
        )
        money = spending(capped, world.pilots, spent, world.now)
        assert money.spent + money.reserved <= budget + 1e-6
        view = GridView(grid=capped, pilots=world.pilots, money=money)
        found = plan([demand(unsent=chance.randrange(30))], [view], QUEUE, world.now)
        for submit in found.submits:
            world.pilots += [
                pilot(index, tag=f"w{world.now}", native_id="", grid="cloud", price=capped.price,
                      submitted_at=world.now, walltime_seconds=3600)
                for index in range(submit.count)
            ]  # fmt: skip
        world.now += chance.uniform(10, 1800)
        for item in [item for item in world.pilots if item.is_live]:
            latest = min(world.now, item.submitted_at + 3600)
            if latest < world.now or chance.random() < 0.5:
                began = chance.uniform(item.submitted_at, latest)
                state = PilotState.ENDED
                world.change({item.id: {"state": state, "started_at": began, "ended_at": latest}})
