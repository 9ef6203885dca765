"""Claims about what is said of two policies after simulations under several seeds."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gridbot_simulator.comparison import PairedDifference, differences, ranges, t_quantile

HOURS = "cpu_hours"


def runs(*values: float | None, begin: int = 1) -> list[dict[str, Any]]:
    """One run a seed; None has not ended."""
    return [
        {"seed": seed, "has_ended": value is not None, HOURS: value}
        for seed, value in enumerate(values, begin)
    ]


def difference(
    one: list[dict[str, Any]], other: list[dict[str, Any]], **more: Any
) -> PairedDifference:
    found = differences(one, other, [HOURS], **more)[HOURS]
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("error", "degrees", "known"),
    [(0.05, 1, 12.706), (0.05, 2, 4.303), (0.05, 7, 2.365), (0.01, 30, 2.750), (0.001, 3, 12.924)],
)
def test_quantiles_are_those_of_published_tables(error: float, degrees: int, known: float) -> None:
    assert t_quantile(error, degrees) == pytest.approx(known, abs=0.0006)


def test_a_difference_far_below_the_spread_of_seeds_is_real_if_each_pair_has_it() -> None:
    seeds = (100.0, 180.0, 50.0, 300.0, 120.0, 90.0, 250.0, 60.0)
    noise = (0.1, -0.2, 0.3, 0.0, -0.1, 0.2, -0.3, 0.1)
    found = difference(
        runs(*(seed + 2 + part for seed, part in zip(seeds, noise, strict=True))), runs(*seeds)
    )
    assert found.verdict == "real"
    assert found.low is not None and found.high is not None
    assert found.low < 2 < found.high


def test_a_difference_that_changes_its_sign_is_open_and_says_how_many_seeds_would_tell() -> None:
    found = difference(runs(9, 12, 8, 13, 11, 10), runs(10, 10, 10, 10, 10, 10))
    assert found.verdict == "open"
    assert found.mean == 0.5
    assert found.seeds_wanted is not None and 20 < found.seeds_wanted < 200


def test_few_seeds_are_never_enough_to_call_a_difference_real() -> None:
    for count in (1, 2, 4):
        found = difference(runs(*(20 + n for n in range(count))), runs(*[10] * count))
        assert found.verdict == "too few seeds"
    assert difference(runs(20, 21, 20, 21, 20), runs(*[10] * 5)).verdict == "real"


def test_policies_that_do_the_same_differ_by_nothing() -> None:
    found = difference(runs(3, 5, 4, 9, 7), runs(3, 5, 4, 9, 7))
    assert (found.mean, found.verdict, found.seeds_wanted) == (0.0, "open", None)


def test_only_seeds_under_which_both_have_ended_are_compared() -> None:
    found = difference(runs(11, None, 13, 14, 15), runs(10, 20, None, 13, begin=1))
    assert (found.seeds, found.mean) == (2, 1.0)
    assert differences(runs(None, 5), runs(4, None), [HOURS]) == {HOURS: None}


def test_of_a_hundred_policies_by_chance_alone_few_comparisons_call_any_real() -> None:
    chance = random.Random(7)
    wrong = 0
    for _ in range(100):
        base = runs(*(chance.gauss(10, 3) for _ in range(8)))
        found = [
            difference(runs(*(chance.gauss(10, 3) for _ in range(8))), base, policies=5)
            for _ in range(4)
        ]
        wrong += any(one.verdict == "real" for one in found)
    assert wrong <= 10  # 5 in the mean; without the correction some 15


def test_a_figure_that_is_0_under_the_other_policy_has_no_part_of_it() -> None:
    assert difference(runs(1, 2, 3, 2, 1), runs(0, 0, 0, 0, 0)).percent is None


def test_ranges_are_of_the_runs_that_ended() -> None:
    assert ranges(runs(None, None), [HOURS]) == {HOURS: None}
    assert ranges(runs(7, None), [HOURS]) == {HOURS: {"median": 7, "low": 7, "high": 7}}
    found = ranges(runs(*range(11)), [HOURS])[HOURS]
    assert found == {"median": 5, "low": 1.0, "high": 9.0}
