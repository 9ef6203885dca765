"""How well the order of BOTs follows their Rank, and the picture of it."""

from pathlib import Path

import pytest
from scripts.evaluation import ranks_picture
from scripts.evaluation.ranking import Course, levels, order, spearman


def one_after_the_other(bots: int, jobs: int) -> list[Course]:
    """The best run there can be: a job per second, each BOT after all that rank higher."""
    return [
        Course(rank, [float((bots - rank) * jobs + job) for job in range(jobs)])
        for rank in range(1, bots + 1)
    ]


def test_the_levels_are_the_papers_scaled_to_the_size_of_the_bots() -> None:
    assert levels(240) == [200, 100, 20, 10, 0]
    assert levels(1200) == [1000, 500, 100, 50, 0]


def test_a_course_says_when_so_many_jobs_were_left_and_how_many_were_left_when() -> None:
    course = Course(1, [1.0, 2.0, 4.0, 8.0])

    assert [course.when_left(left) for left in (3, 1, 0)] == [1.0, 4.0, 8.0]
    assert [course.left_at(moment) for moment in (0.5, 2.0, 3.9, 9.0)] == [4, 2, 2, 0]


@pytest.mark.parametrize("left", [200, 100, 20, 10, 0])
def test_bots_that_follow_each_other_by_rank_are_in_perfect_order(left: int) -> None:
    judged = order(one_after_the_other(bots=5, jobs=240), left, in_flight=16)

    assert judged.spearman == pytest.approx(-1.0)
    assert (judged.swapped, judged.unexplained) == (0, 0)


def test_a_straggler_that_was_in_flight_explains_a_swap() -> None:
    lower, higher = one_after_the_other(bots=2, jobs=10)
    late = Course(higher.rank, [*higher.ended[:-1], lower.ended[-1] + 1])

    judged = order([lower, late], left=0, in_flight=1)

    assert (judged.swapped, judged.unexplained) == (1, 0)


def test_more_jobs_left_than_can_be_in_flight_show_that_a_bot_was_passed_over() -> None:
    lower, higher = one_after_the_other(bots=2, jobs=10)
    late = [*higher.ended[:-2], lower.ended[-1] + 1, lower.ended[-1] + 2]

    judged = order([lower, Course(higher.rank, late)], left=0, in_flight=1)

    assert (judged.swapped, judged.unexplained) == (1, 1)


def test_order_does_not_depend_on_how_the_bots_are_listed() -> None:
    courses = one_after_the_other(bots=4, jobs=12)

    assert order(courses[::-1], 1, 2) == order(courses, 1, 2)


def test_spearman_is_about_places_and_shares_those_of_equal_values() -> None:
    assert spearman([1, 2, 3, 4], [1, 10, 100, 1e9]) == pytest.approx(1.0)
    assert spearman([1, 2, 3, 4], [4, 4, 1, 1]) == pytest.approx(-2 / 5**0.5)


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path, courses = tmp_path / "figure.png", one_after_the_other(bots=3, jobs=12)

    ranks_picture.draw(path, courses, levels(12), "three BOTs", "seconds")

    assert path.read_bytes().startswith(b"\x89PNG")
