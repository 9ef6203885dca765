"""Claims about the brake: which failures hold a BOT, and that nothing of a held one is sent."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.db.dispatching import Caller, Dispatch, caller, failure, success
from tests.factories import make_bot, make_owner

from gridbot_client.protocol.messages import Assignment, Report
from gridbot_server.cycles.brake import is_too_many
from gridbot_server.storage import invariants
from gridbot_server.storage.db import Connection

POLICY = "ReplicationRequirements = false; Concurrency = 999;"


def held(conn: Connection) -> str | None:
    """Why the only BOT is held."""
    row = conn.execute("SELECT held FROM bot").fetchone()
    assert row is not None
    return None if row[0] is None else str(row[0])


def resume(conn: Connection, bot: int) -> None:
    conn.execute(
        "UPDATE bot SET held = NULL, watched = false, policy_version = policy_version + 1"
        " WHERE id = %s",
        [bot],
    )


def take(dispatch: Dispatch, client: Caller, want: int) -> list[Assignment]:
    dispatch.feed()
    return list(client.ask(want).assignments)


def report(dispatch: Dispatch, client: Caller, *reports: Report) -> None:
    client.ask(0, reports)
    dispatch.settle()


def broken(item: Assignment, stderr: str, reason: str = "exit_nonzero") -> Report:
    return replace(failure(item, reason), stderr=stderr)


def test_ten_failures_alike_on_two_hosts_hold_a_bot_and_nothing_more_is_sent(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    other = caller(dispatch, alice)
    make_bot(conn, alice, 40, policy=POLICY)
    first, second = take(dispatch, client, 8), take(dispatch, other, 8)
    report(dispatch, client, *(broken(item, f"job {item.id.seq}: no\n") for item in first))
    report(dispatch, other, broken(second[0], "job 8: no\n"))
    assert held(conn) is None
    report(dispatch, other, broken(second[1], "job 9: no\n"))
    assert held(conn) == (
        "its first 10 replicas all failed alike (exit_nonzero, exit code 1): job #: no"
    )
    assert take(dispatch, client, 100) == []
    assert take(dispatch, other, 100) == []
    assert invariants.check(conn, idle=False) == []


def test_what_a_held_bot_had_sent_is_reported_and_counts(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    other = caller(dispatch, alice)
    bot = make_bot(conn, alice, 12, policy=POLICY)
    first, second = take(dispatch, client, 9), take(dispatch, other, 3)
    report(dispatch, client, *map(failure, first))
    report(dispatch, other, failure(second[0]))
    assert held(conn)
    reply = other.ask(0)
    assert reply.abort == ()
    report(dispatch, other, *map(success, second[1:]))
    assert conn.execute("SELECT state, done FROM bot").fetchall() == [("running", 2)]
    resume(conn, bot)
    while given := take(dispatch, client, 100) + take(dispatch, other, 100):
        for each in (client, other):
            report(dispatch, each, *(success(i) for i in given if i.id in each.holding))
    assert conn.execute("SELECT state, done FROM bot").fetchall() == [("done", 12)]
    assert invariants.check(conn, idle=True) == []


def test_one_host_that_fails_all_it_gets_holds_no_bot_for_which_another_works(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    other = caller(dispatch, alice)
    make_bot(conn, alice, 40, policy=POLICY)
    (working,) = take(dispatch, other, 1)
    report(dispatch, client, *map(failure, take(dispatch, client, 20)))
    assert held(conn) is None
    report(dispatch, other, success(working))
    report(dispatch, client, *map(failure, take(dispatch, client, 20)))
    assert held(conn) is None


def test_the_only_host_that_works_for_a_bot_holds_it(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, 40, policy=POLICY)
    report(dispatch, client, *map(failure, take(dispatch, client, 10)))
    assert held(conn)


def test_among_strangers_hosts_of_one_owner_are_one(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bob, carol = make_owner(conn, "bob"), make_owner(conn, "carol")
    make_bot(conn, alice, 60, policy=POLICY, signature=bytes(64))
    conn.execute("UPDATE host SET width = 100")
    one, two, three = caller(dispatch, bob), caller(dispatch, bob), caller(dispatch, carol)
    conn.execute("UPDATE host SET width = 100")
    conn.execute("UPDATE crew SET width = 100")
    (working,) = take(dispatch, three, 1)
    for each in (one, two):
        report(dispatch, each, *map(failure, take(dispatch, each, 6)))
    assert held(conn) is None
    report(dispatch, three, failure(working))
    assert held(conn)


@pytest.mark.parametrize("other", ["another_reason", "another_line"])
def test_failures_that_differ_hold_no_bot(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller, other: str
) -> None:
    make_bot(conn, alice, 40, policy=POLICY)
    first, *rest = take(dispatch, client, 20)
    odd = failure(first, "memory_limit") if other == "another_reason" else broken(first, "odd")
    report(dispatch, client, odd, *map(failure, rest))
    assert held(conn) is None


def test_of_a_large_bot_one_job_in_a_hundred_must_fail(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, 2000, policy=POLICY)
    first = take(dispatch, client, 19)
    report(dispatch, client, *map(failure, first))
    assert held(conn) is None
    report(dispatch, client, *map(failure, take(dispatch, client, 1)))
    assert held(conn)


def test_a_bot_that_was_resumed_is_not_held_for_the_same_again(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, 40, policy=POLICY)
    report(dispatch, client, *map(failure, take(dispatch, client, 10)))
    resume(conn, bot)
    report(dispatch, client, *map(failure, take(dispatch, client, 30)))
    assert held(conn) is None


@pytest.mark.parametrize(
    ("limit", "is_held"), [("1", True), ("5%", True), ("2", False), (None, False)]
)
def test_more_failed_jobs_than_are_allowed_hold_a_bot(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller, limit: str, is_held: bool
) -> None:
    make_bot(conn, alice, 20, policy=POLICY, max_attempts=1, max_failures=limit)
    good, *bad = take(dispatch, client, 3)
    report(dispatch, client, success(good), *map(failure, bad))
    assert (held(conn) is not None) == is_held
    if is_held:
        assert held(conn) == f"2 of its 20 jobs failed, and --max-failures is {limit}"


def test_a_bot_of_which_all_may_fail_is_never_held(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, 40, policy=POLICY, max_failures="100%", max_attempts=1)
    report(dispatch, client, *map(failure, take(dispatch, client, 40)))
    assert conn.execute("SELECT state, failed, held FROM bot").fetchall() == [("done", 40, None)]


def test_limits_are_numbers_of_jobs_or_shares_of_them() -> None:
    assert [is_too_many(n, 1000, "5") for n in (5, 6)] == [False, True]
    assert [is_too_many(n, 1000, "0.5%") for n in (5, 6)] == [False, True]
    assert [is_too_many(n, 10, "0") for n in (0, 1)] == [False, True]
