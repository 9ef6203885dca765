from gridbot_server.matching.width import FULL, LEAST, START, WidthChange, changed, room


def test_a_host_whose_answers_are_good_doubles_its_width_whenever_it_has_answered_all() -> None:
    width, rounds = START, 0
    while width < 64:
        width, rounds = changed(width, WidthChange(growth=int(width))), rounds + 1
    assert rounds == 3


def test_one_failure_in_a_hundred_leaves_a_host_wide_enough_for_sixteen_cores() -> None:
    width = START
    for number in range(1, 2001):
        change = WidthChange().after(valid=number % 100 != 0, failed=number % 100 == 0, wrong=0)
        width = changed(width, change)
        assert number < 50 or width >= 32


def test_wrong_answers_leave_a_width_of_one() -> None:
    width = changed(FULL, WidthChange().after(valid=0, failed=0, wrong=6))
    assert width == LEAST
    assert room(width, 1) == 0


def test_who_has_proven_enough_is_not_bounded() -> None:
    assert room(FULL, 10_000) > 0
    assert room(START, 8) == 0 and room(START, 3) == 5
