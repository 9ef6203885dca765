from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.db.dispatching import Caller, Dispatch, dispatching, success
from tests.factories import make_bot

from gridbot_server.bots.cancelling import cancel_jobs
from gridbot_server.cycles import replication
from gridbot_server.storage import growing, invariants
from gridbot_server.storage.db import PostgresConnection


@pytest.fixture
def dispatch(dsn: str, conn: PostgresConnection, tmp_path: Path) -> Iterator[Dispatch]:
    with dispatching(dsn, conn, tmp_path / "test.buffer") as made:
        yield made


def make_growing(conn: PostgresConnection, owner: int, jobs: int = 0, **columns: Any) -> int:
    return make_bot(conn, owner, jobs, growing=True, grown_at="now", **columns)


def grow(conn: PostgresConnection, bot: int, jobs: int) -> None:
    with conn.transaction():
        conn.execute(
            "INSERT INTO job (bot, seq, args) SELECT id, n, jsonb_build_object('i', n)"
            " FROM bot, generate_series(size, size + %s - 1) AS n WHERE id = %s",
            [jobs, bot],
        )
        conn.execute("UPDATE bot SET size = size + %s WHERE id = %s", [jobs, bot])


def run_all(dispatch: Dispatch, client: Caller) -> list[int]:
    dispatch.feed()
    given = client.ask(100).assignments
    client.ask(0, tuple(map(success, given)))
    dispatch.settle()
    return sorted(item.id.seq for item in given)


def bot_row(conn: PostgresConnection, bot: int, columns: str) -> tuple[Any, ...]:
    row = conn.execute(f"SELECT {columns} FROM bot WHERE id = %s".encode(), [bot]).fetchone()
    assert row is not None
    return row


def test_appended_jobs_are_sent_and_the_bot_ends_when_it_is_closed(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bot = make_growing(conn, alice, 2)
    assert run_all(dispatch, client) == [0, 1]
    assert bot_row(conn, bot, "state, done, size") == ("running", 2, 2)
    for n in range(2, 5):
        grow(conn, bot, 1)
        assert run_all(dispatch, client) == [n]
        assert invariants.check(conn, idle=True) == []
    assert growing.close(conn, [bot], growing.BY_OWNER) == 1
    assert bot_row(conn, bot, "state, done, growing, ended_at IS NULL") == ("done", 5, False, False)
    assert growing.close(conn, [bot], growing.BY_OWNER) == 0
    dispatch.feed()
    assert invariants.check(conn, idle=True) == []


def test_closing_first_lets_the_last_job_end_the_bot(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bot = make_growing(conn, alice, 1)
    growing.close(conn, [bot], growing.BY_OWNER)
    assert bot_row(conn, bot, "state") == ("running",)
    run_all(dispatch, client)
    assert bot_row(conn, bot, "state") == ("done",)


def test_a_growing_bot_without_unfinished_jobs_is_no_part_of_a_host_request(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    empty, used = make_growing(conn, alice), make_growing(conn, alice, 1)
    run_all(dispatch, client)
    dispatch.feed()
    dispatch.feed()
    assert dispatch.buffer.segments() == []
    assert conn.execute("SELECT count(*) FROM feed_range").fetchone() == (0,)
    assert bot_row(conn, empty, "state") == bot_row(conn, used, "state") == ("running",)
    grow(conn, empty, 1)
    dispatch.feed()
    assert [item.state.bot for item in dispatch.buffer.segments()] == [empty]


def test_the_tail_of_a_growing_bot_begins_when_it_is_closed(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bot = make_growing(conn, alice, 3, policy="ReplicationRequirements = true")
    dispatch.feed()
    given = client.ask(3).assignments
    dispatch.feed()
    assert bot_row(conn, bot, "tail") == (False,)
    assert replication.run_once(conn, 1e9) == 0
    growing.close(conn, [bot], growing.BY_OWNER)
    dispatch.feed()
    assert bot_row(conn, bot, "tail") == (True,)
    client.ask(0, tuple(map(success, given)))
    dispatch.settle()
    assert bot_row(conn, bot, "state, done") == ("done", 3)


def test_appending_and_finishing_at_once_loses_no_job(
    dispatch: Dispatch, conn: PostgresConnection, dsn: str, alice: int, client: Caller
) -> None:
    """Of a transaction that appends, the transitioner that finishes the last job sees nothing."""
    bot = make_growing(conn, alice, 1)
    dispatch.feed()
    given = client.ask(1).assignments
    with closing(psycopg.connect(dsn, autocommit=True)) as other, other.transaction():
        other.execute("INSERT INTO job (bot, seq, args) VALUES (%s, 1, '{\"i\": 1}')", [bot])
        client.ask(0, tuple(map(success, given)))
        other.execute("UPDATE bot SET size = size + 1 WHERE id = %s", [bot])
    dispatch.settle()
    assert bot_row(conn, bot, "state, done, size") == ("running", 1, 2)
    assert run_all(dispatch, client) == [1]
    assert invariants.check(conn, idle=True) == []


def test_feeders_are_told_of_appended_jobs(conn: PostgresConnection, dsn: str, alice: int) -> None:
    bot = make_growing(conn, alice, 1)
    with closing(psycopg.connect(dsn, autocommit=True)) as listener:
        listener.execute("LISTEN gridbot_jobs")
        grow(conn, bot, 1)
        assert [item.channel for item in listener.notifies(timeout=20, stop_after=1)]


def ended(conn: PostgresConnection, bot: int) -> dict[int, str | None]:
    rows = conn.execute("SELECT seq, reason FROM outcome WHERE bot = %s ORDER BY seq", [bot])
    return dict(rows.fetchall())


def test_single_jobs_are_cancelled_wherever_they_are(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=6, policy="Concurrency = 2")
    dispatch.feed()
    given = client.ask(2).assignments
    client.ask(0, (success(given[0]),))
    dispatch.settle()
    assert cancel_jobs(conn, bot, [0, 1, 3, 4, 3]) == [1, 3, 4]
    assert cancel_jobs(conn, bot, [0, 1, 3, 4]) == []
    assert ended(conn, bot) == dict.fromkeys([1, 3, 4], "cancelled") | {0: None}
    assert bot_row(conn, bot, "state, done, failed, jobs_cancelled") == ("running", 1, 3, 3)
    assert client.ask(0).abort == (given[1].id,)
    assert invariants.check(conn, idle=False) == []
    dispatch.feed()
    rest = client.ask(6).assignments
    assert sorted(item.id.seq for item in rest) == [2, 5]
    client.ask(0, tuple(map(success, rest)))
    dispatch.settle()
    dispatch.feed()
    assert bot_row(conn, bot, "state, done, failed") == ("done", 3, 3)
    assert invariants.check(conn, idle=True) == []


def test_only_unsent_jobs_are_cancelled_if_that_is_asked_for(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=4, policy="Concurrency = 2")
    dispatch.feed()
    given = client.ask(2).assignments
    assert cancel_jobs(conn, bot, [0, 1, 2], only_unsent=True) == [2]
    assert client.ask(0, tuple(map(success, given))).abort == ()
    dispatch.settle()
    assert run_all(dispatch, client) == [3]
    dispatch.feed()
    assert bot_row(conn, bot, "state, done, failed") == ("done", 3, 1)
    assert invariants.check(conn, idle=True) == []


def test_a_job_is_cancelled_before_a_feeder_has_claimed_it(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=3, policy="Concurrency = 9")
    assert cancel_jobs(conn, bot, [1]) == [1]
    assert invariants.check(conn, idle=True) == []
    assert run_all(dispatch, client) == [0, 2]
    assert bot_row(conn, bot, "state") == ("done",)
    dispatch.feed()
    assert invariants.check(conn, idle=True) == []


def test_many_cancelled_jobs_delay_no_other_one(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=2000, policy="Concurrency = 9")
    cancel_jobs(conn, bot, range(1999))
    dispatch.feed()
    assert run_all(dispatch, client) == [1999]
    assert bot_row(conn, bot, "state") == ("done",)


def test_the_last_jobs_cancellation_ends_a_bot_unless_it_grows(
    conn: PostgresConnection, alice: int
) -> None:
    bot, open_ = make_bot(conn, alice, jobs=2), make_growing(conn, alice, 2)
    for each in (bot, open_):
        cancel_jobs(conn, each, [0, 1])
    assert bot_row(conn, bot, "state") == ("done",)
    assert bot_row(conn, open_, "state") == ("running",)
    assert invariants.check(conn, idle=True) == []


def test_an_answer_that_a_cancelled_job_had_is_held_against_nobody(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, quorum=2)
    dispatch.feed()
    (given,) = client.ask(1).assignments
    client.ask(0, (success(given),))
    cancel_jobs(conn, bot, [0])
    dispatch.settle()
    rows = conn.execute("SELECT how, valid FROM ended WHERE client <> 0").fetchall()
    assert rows == [("success", None)]
    assert conn.execute("SELECT max(error_rate) FROM host").fetchone() == pytest.approx((0.1,))
    dispatch.feed()
    assert invariants.check(conn, idle=True) == []


def test_a_closed_bot_that_grows_breaks_an_invariant(conn: PostgresConnection, alice: int) -> None:
    make_growing(conn, alice, closed=growing.BY_OWNER)
    make_growing(conn, alice, tail=True)
    violated = [item.name for item in invariants.check(conn, idle=False)]
    assert violated == ["only_a_running_bot_grows", "a_growing_bot_has_no_tail"]
