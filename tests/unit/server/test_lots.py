"""For whom the check of a stranger's answer is kept."""

import random
from collections import Counter

from gridbot_server.matching.lots import (
    ANYBODY,
    FEW,
    MOST_VAIN,
    NOBODY,
    Elector,
    Electorate,
    mark,
    patience,
)

MANY = [Elector(f"owner {number}", number) for number in range(200)]
ALL = {elector.owner for elector in MANY}


def test_each_crew_that_does_not_hold_the_job_is_drawn_equally_often() -> None:
    chance, electorate = random.Random(1), Electorate(MANY)
    drawn = Counter(electorate.draw({7, 90}, chance.random()) for _ in range(20_000))
    others = {mark(elector.crew) for elector in MANY if elector.owner not in (7, 90)}
    assert set(drawn) == others
    assert max(drawn.values()) < 3 * 20_000 / len(others)


def test_a_few_crews_check_each_other_as_they_ask() -> None:
    assert Electorate(MANY[:FEW]).draw({0}, 0.5) == ANYBODY
    assert Electorate(MANY[: FEW + 1]).draw({0}, 0.5) not in (ANYBODY, NOBODY)


def test_nothing_is_drawn_while_most_crews_have_just_come() -> None:
    """A ring that is there before all others would check itself."""
    ring = [elector._replace(is_new=True) for elector in MANY[: 2 * FEW]]
    assert Electorate(ring).draw({0}, 0.5) == NOBODY
    assert Electorate([*ring[:FEW], *MANY[FEW:]]).draw({0}, 0.5) not in (ANYBODY, NOBODY)


def test_nothing_is_drawn_where_all_hold_the_job() -> None:
    assert Electorate(MANY).draw(ALL, 0.5) == NOBODY


def test_after_a_draw_in_vain_it_is_drawn_among_those_who_work_for_the_bot() -> None:
    """Others may be unable to run it: then its checks would wait for ever."""
    chance, electorate = random.Random(1), Electorate(MANY)
    workers = MANY[50:60]
    drawn = {electorate.draw({50}, chance.random(), 1, workers) for _ in range(1000)}
    assert drawn == {mark(worker.crew) for worker in workers[1:]}


def test_what_no_other_crew_works_for_goes_to_whoever_asks_after_some_draws() -> None:
    electorate = Electorate(MANY)
    assert electorate.draw({50}, 0.5, MOST_VAIN - 1, MANY[50:51]) != ANYBODY
    assert electorate.draw({50}, 0.5, MOST_VAIN, MANY[50:51]) == ANYBODY


def test_a_crew_has_three_pauses_of_a_usual_host_to_come() -> None:
    assert [patience(pause) for pause in (0.0, 40.0, 1e9)] == [10.0, 120.0, 3600.0]
