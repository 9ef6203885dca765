"""For whom the check of a stranger's answer is kept."""

import random
from collections import Counter

from gridbot_server.matching.lots import ANYBODY, FEW, NOBODY, Elector, draw, mark, patience

MANY = [Elector(f"owner {number}", number) for number in range(200)]


def test_each_crew_that_does_not_hold_the_job_is_drawn_equally_often() -> None:
    chance = random.Random(1)
    drawn = Counter(draw(MANY, {7, 8}, chance.random()) for _ in range(20_000))
    others = {mark(elector.crew) for elector in MANY if elector.owner not in (7, 8)}
    assert set(drawn) == others
    assert max(drawn.values()) < 2 * 20_000 / len(others)


def test_a_few_crews_check_each_other_as_they_ask() -> None:
    assert draw(MANY[:FEW], {0}, 0.5) == ANYBODY
    assert draw(MANY[: FEW + 1], {0}, 0.5) not in (ANYBODY, NOBODY)


def test_nothing_is_drawn_while_most_crews_have_just_come() -> None:
    """A ring that is there before all others would check itself."""
    ring = [elector._replace(is_new=True) for elector in MANY[: 2 * FEW]]
    assert draw(ring, {0}, 0.5) == NOBODY
    assert draw([*ring[:FEW], *MANY[FEW:]], {0}, 0.5) not in (ANYBODY, NOBODY)


def test_nothing_is_drawn_where_all_hold_the_job() -> None:
    assert draw(MANY, {elector.owner for elector in MANY}, 0.5) == NOBODY


def test_a_crew_has_three_pauses_of_a_usual_host_to_come() -> None:
    assert [patience(pause) for pause in (0.0, 40.0, 1e9)] == [10.0, 120.0, 3600.0]
