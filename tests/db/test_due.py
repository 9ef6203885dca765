"""Which cycles are called because what they look for is there."""

from __future__ import annotations

from pathlib import Path

from tests.db.dispatching import Caller, Dispatch
from tests.factories import make_bot

from gridbot_server.cycles import deadline, gangs
from gridbot_server.cycles.schedule import due, schedules
from gridbot_server.settings import Settings
from gridbot_server.storage.db import PostgresConnection


def test_nothing_is_due_while_jobs_run_in_time(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, jobs=20)
    dispatch.feed()
    assert client.ask().assignments
    assert due(conn) == []


def test_a_deadline_that_has_passed_is_due_until_its_job_goes_back(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, jobs=20)
    dispatch.feed()
    assert client.ask().assignments
    conn.execute("UPDATE lease SET deadline = now() - interval '1 s' WHERE seq = 0")
    assert due(conn) == ["deadline"]
    assert deadline.run_once(conn) == 1
    assert due(conn) == []


def test_a_cancelled_bot_is_due_as_long_as_anything_of_it_is_there(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    cancelled = "UPDATE bot SET state = 'cancelled', ended_at = now() WHERE id = %s"
    bots = [make_bot(conn, alice, jobs=20, policy="Concurrency = 3") for _ in range(3)]
    conn.execute(
        "INSERT INTO requeue (bot, seq, replica, round, why) VALUES (%s, 0, 2, 0, 'retry')",
        [bots[1]],
    )
    conn.execute(
        "INSERT INTO unjudged (bot, seq, replica, host, crew) VALUES (%s, 0, 1, 1, 'x')", [bots[2]]
    )
    dispatch.feed()
    assert client.ask().assignments
    conn.execute("DELETE FROM lease WHERE bot <> %s", [bots[0]])
    for bot in bots:
        assert due(conn) == []
        conn.execute(cancelled, [bot])
        assert due(conn) == ["sweep"]
        deadline.sweep_cancelled(conn)
    assert due(conn) == []


def test_gangs_are_due_when_they_gather_for_too_long_and_when_their_bot_has_ended(
    conn: PostgresConnection, alice: int
) -> None:
    bot = make_bot(conn, alice, jobs=4, together=2)
    conn.execute(
        "INSERT INTO gang (bot, number, size, gather_until)"
        " VALUES (%s, 0, 2, now() + interval '1 h')",
        [bot],
    )
    assert due(conn) == []
    conn.execute("UPDATE gang SET gather_until = now() - interval '1 s'")
    assert due(conn) == ["gangs"]
    assert gangs.run_once(conn) == 1
    assert due(conn) == []  # it rests
    conn.execute("UPDATE bot SET state = 'done', ended_at = now()")
    assert due(conn) == ["gangs"]
    gangs.run_once(conn)
    assert due(conn) == []


def test_what_may_be_due_is_a_cycle(conn: PostgresConnection, alice: int, tmp_path: Path) -> None:
    bot = make_bot(conn, alice, jobs=4, together=2)
    conn.execute("INSERT INTO gang (bot, number, size) VALUES (%s, 0, 2)", [bot])
    conn.execute(
        "INSERT INTO lease (bot, seq, replica, round, why, client, host, owner, deadline,"
        " request_key) VALUES (%s, 0, 1, 0, 'first', 0, 0, %s, now() - interval '1 s', '')",
        [bot, alice],
    )
    conn.execute("UPDATE bot SET state = 'cancelled', ended_at = now()")
    found = due(conn)
    assert len(found) == 3
    assert set(found) <= {item.name for item in schedules(Settings(data=tmp_path))}
