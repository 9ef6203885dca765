import pytest

from gridbot_server.cycles.rhythm import IDLE_SECONDS, MUCH, Rhythm, Turns


def test_cycles_keep_to_their_schedule_while_any_of_them_finds_something() -> None:
    now = 1000.0
    rhythm = Rhythm(lambda: now)
    for _ in range(10):
        now += 1
        assert rhythm.pause(0.2) == 0.2
        rhythm.note_find()


def test_cycles_are_slow_while_none_finds_anything_and_hurry_after_the_next_find() -> None:
    now = 1000.0
    rhythm = Rhythm(lambda: now)
    now += 60
    assert rhythm.is_idle
    assert rhythm.pause(0.2) == IDLE_SECONDS
    rhythm.note_find()
    assert rhythm.pause(0.2) == 0.2


def test_a_cycle_that_is_slower_by_itself_keeps_its_schedule() -> None:
    now = 1000.0
    rhythm = Rhythm(lambda: now)
    now += 60
    assert rhythm.pause(600.0) == 600.0


def test_the_transitioner_is_due_at_once_and_then_in_its_rhythm() -> None:
    now = 1000.0
    turns = Turns(0.2, Rhythm(lambda: now))
    assert turns.due_at <= now
    turns.note_pass(1000.0, 1000.5, found=0)
    assert turns.due_at == pytest.approx(1000.7)
    now += 60
    assert turns.due_at == pytest.approx(1000.5 + IDLE_SECONDS)


def test_reports_call_the_transitioner_when_it_has_rested_in_proportion_to_its_last_pass() -> None:
    turns = Turns(0.2, Rhythm(lambda: 1000.0))
    turns.note_pass(1000.0, 1000.01, found=3)
    turns.call()
    assert turns.due_at == pytest.approx(1000.04)
    turns.note_pass(1000.04, 1000.045, found=100)
    assert turns.due_at == pytest.approx(1000.245)  # what called before has been served
    turns.call()
    assert turns.due_at == pytest.approx(1000.14)
    turns.note_pass(1000.14, 1002.0, found=100)
    turns.call()
    assert turns.due_at == pytest.approx(1002.2)  # no longer than the rhythm says


def test_a_pass_that_has_found_much_is_followed_by_the_next_one_at_once() -> None:
    turns = Turns(0.2, Rhythm(lambda: 1000.0))
    turns.note_pass(1000.0, 1001.0, found=MUCH)
    assert turns.due_at == 1001.0
    turns.note_pass(1001.0, 1001.5, found=MUCH - 1)
    assert turns.due_at > 1001.5
