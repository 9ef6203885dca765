"""A clock that is set ahead ends no lease, and makes no client silent, before its time."""

from __future__ import annotations

from tests.db.dispatching import Caller, Dispatch, success
from tests.factories import make_bot

from gridbot_server.cycles.clock import LEAP_SECONDS, LeapWatch
from gridbot_server.cycles.deadline import DeadlineCycle
from gridbot_server.cycles.silence import Silence
from gridbot_server.storage.db import Connection

HOUR = 3600.0


def set_ahead(conn: Connection, seconds: float) -> None:
    """Leave everything behind, as it is when the clock is set ahead."""
    conn.execute("UPDATE lease SET deadline = deadline - make_interval(secs => %s)", [seconds])
    conn.execute("UPDATE client SET seen_at = seen_at - make_interval(secs => %s)", [seconds])


def test_a_clock_is_watched_that_goes_and_that_leaps(conn: Connection) -> None:
    watch = LeapWatch()
    assert watch.leap(conn, 1000.0) == 0.0
    assert watch.leap(conn, 1000.0 - LEAP_SECONDS / 2) == 0.0  # a slow answer
    assert watch.leap(conn, 1000.0 + HOUR) == 0.0  # set back, or it slept and was not
    assert HOUR - 1 < watch.leap(conn, 1000.0) < HOUR + 60
    assert watch.leap(conn, 1000.0) == 0.0


def test_no_lease_ends_by_a_clock_that_is_set_ahead(
    dispatch: Dispatch, conn: Connection, client: Caller, alice: int
) -> None:
    bot = make_bot(conn, alice, jobs=5)
    dispatch.feed()
    given = client.ask().assignments
    assert len(given) == 5
    conn.execute("UPDATE lease SET deadline = now() + interval '10 minutes'")
    cycle = DeadlineCycle()
    assert cycle.run_once(conn, HOUR) == 0
    set_ahead(conn, HOUR)
    assert cycle.run_once(conn, 0.0) == 0  # the database's clock went an hour ahead of the time
    left = conn.execute("SELECT count(*) FROM lease WHERE deadline > now()").fetchone()
    assert left == (5,)
    client.ask(want=0, reports=tuple(map(success, given)))
    dispatch.settle()
    rows = conn.execute("SELECT done FROM bot WHERE id = %s", [bot]).fetchall()
    assert rows == [(5,)]


def test_deadlines_that_pass_end_their_leases_as_ever(
    dispatch: Dispatch, conn: Connection, client: Caller, alice: int
) -> None:
    make_bot(conn, alice, jobs=5)
    dispatch.feed()
    assert len(client.ask().assignments) == 5
    cycle = DeadlineCycle()
    assert cycle.run_once(conn, HOUR) == 0
    conn.execute("UPDATE lease SET deadline = now() - interval '1 second'")
    assert cycle.run_once(conn, HOUR) == 5


def test_nobody_is_silent_by_a_clock_that_is_set_ahead(
    dispatch: Dispatch, conn: Connection, client: Caller, alice: int
) -> None:
    make_bot(conn, alice, jobs=1)
    dispatch.feed()
    assert len(client.ask().assignments) == 1
    cycle, now = Silence(60.0), 10 * HOUR
    for _ in range(200):  # it is heard for more than an hour
        now += 25.0
        conn.execute("UPDATE client SET seen_at = now()")
        assert cycle.run_once(conn, now) == 0
    set_ahead(conn, HOUR)
    now -= HOUR  # as the time since boot is behind a clock that went ahead
    assert cycle.run_once(conn, now) == 0
    for _ in range(30):  # but one that stays away is, at last
        now += 25.0
        found = cycle.run_once(conn, now)
        if found:
            break
    assert found == 1
