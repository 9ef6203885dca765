import random
from collections.abc import Callable

import pytest

from gridbot_server.credit.rule import CREDIT_PER_SECOND, TYPICAL_PACE, Worth, vote

Times = dict[str, Callable[[], float]]

HOUR = 3600.0
JOB = Worth(cpus=1, limit_seconds=10 * HOUR)


def learnt(times: Times, worth: Worth = JOB, rounds: int = 300) -> tuple[Worth, dict[str, float]]:
    """What is known once each host has reported so often, in turns."""
    paces = dict.fromkeys(times, TYPICAL_PACE)
    for _ in range(rounds):
        for host, seconds in times.items():
            worth, paces[host] = vote(worth, paces[host], seconds())
    return worth, paces


def hosts(count: int, seconds: float, name: str = "host") -> Times:
    return {f"{name} {n}": lambda: seconds for n in range(count)}


def about(seconds: float, seed: int) -> Callable[[], float]:
    draw = random.Random(seed)
    return lambda: seconds * draw.lognormvariate(0, 0.5)


def test_a_day_of_a_typical_core_earns_200() -> None:
    day = Worth(cpus=1, limit_seconds=1e6, seconds=86_400)
    assert day.credit == pytest.approx(200)
    assert Worth(cpus=4, limit_seconds=1e6, seconds=86_400).credit == pytest.approx(800)
    assert CREDIT_PER_SECOND == 200 / 86_400


def test_nothing_is_earned_before_an_answer_was_valid() -> None:
    assert JOB.credit == 0


def test_what_hosts_take_on_average_is_found_whatever_the_first_said() -> None:
    noisy = {f"host {n}": about(600, n) for n in range(20)}
    for first in (1.0, 600.0, 10 * HOUR):
        worth, _ = learnt(noisy, vote(JOB, TYPICAL_PACE, first)[0])
        assert worth.seconds == pytest.approx(600, rel=0.2)


def test_what_is_known_from_many_moves_little_by_one_however_late() -> None:
    worth, _ = learnt(hosts(10, 600))
    for seconds in (1e-9, -5.0, 1e12):
        moved, pace = vote(worth, TYPICAL_PACE, seconds)
        assert moved.credit == pytest.approx(worth.credit, rel=0.021)
        assert pace == pytest.approx(TYPICAL_PACE, rel=0.11)


@pytest.mark.parametrize(("late", "most"), [(1, 1.15), (4, 1.6), (8, 2.7)])
def test_hosts_that_always_report_late_only_prove_slow(late: int, most: float) -> None:
    honest, _ = learnt(hosts(20, 600))
    times = hosts(20 - late, 600) | hosts(late, 12_000, "late")
    soon, _ = learnt(times)
    worth, paces = learnt(times, rounds=2000)
    assert worth.credit <= honest.credit * most  # and theirs is no more than that of all
    assert worth.credit < soon.credit
    assert paces["late 0"] == pytest.approx(20 * paces["host 0"], rel=0.1)


def test_a_host_that_begins_to_report_late_raises_little_and_not_for_long() -> None:
    honest = {f"host {n}": 600.0 for n in range(19)}
    worth, paces = learnt(hosts(20, 600))
    credits = []
    for _ in range(2000):
        for host, seconds in {"host 19": 60_000.0, **honest}.items():
            worth, paces[host] = vote(worth, paces[host], seconds)
        credits.append(worth.credit)
    honestly = 600 * CREDIT_PER_SECOND
    assert max(credits) <= 1.25 * honestly
    assert credits[-1] <= 1.1 * honestly


def test_not_even_a_lone_host_gets_more_than_the_declared_limit() -> None:
    worth, _ = learnt({"late": lambda: 1e9})
    assert worth.credit <= CREDIT_PER_SECOND * JOB.limit_seconds * 1.000001


def test_a_job_is_worth_the_same_whether_slow_or_fast_hosts_have_its_bot() -> None:
    both = hosts(10, 300, "fast") | hosts(10, 1200, "slow")
    _, paces = learnt(both)
    worth = {"fast": JOB, "slow": JOB}
    for name, seconds in (("fast", 300.0), ("slow", 1200.0)):
        for n in range(10):
            worth[name], _ = vote(worth[name], paces[f"{name} {n}"], seconds)
    assert worth["slow"].credit == pytest.approx(worth["fast"].credit, rel=0.1)


def test_longer_jobs_are_worth_more_in_proportion() -> None:
    short, paces = learnt(hosts(10, 100))
    long = JOB
    for pace in paces.values():
        long, _ = vote(long, pace, 1000)
    assert long.credit == pytest.approx(10 * short.credit, rel=0.05)
