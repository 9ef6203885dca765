from gridbot_server.cycles.rhythm import IDLE_SECONDS, Rhythm


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
