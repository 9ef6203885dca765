"""Groups where BOTs are dispatched and decided."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.db.dispatching import Caller, Dispatch, dispatching, success
from tests.factories import make_bot

from gridbot_server.cycles import retention
from gridbot_server.storage import db, invariants, sql
from gridbot_server.storage.db import PostgresConnection
from gridbot_server.storage.rows import fetch_value


@pytest.fixture
def dispatch(dsn: str, conn: PostgresConnection, tmp_path: Path) -> Iterator[Dispatch]:
    with dispatching(dsn, conn, tmp_path / "test.buffer") as made:
        yield made


def make_group(conn: PostgresConnection, owner: int, name: str, share: float | None = None) -> int:
    row = conn.execute(
        "INSERT INTO bot_group (owner, name, share) VALUES (%s, %s, %s) RETURNING id",
        [owner, name, share],
    ).fetchone()
    assert row is not None
    return int(row[0])


def join(conn: PostgresConnection, owner: int, name: str) -> int | None:
    """As a submission does."""
    return fetch_value(conn, int, sql.load("groups.sql")["join"], {"owner": owner, "name": name})


def runs(conn: PostgresConnection, group: int) -> list[tuple[Any, ...]]:
    query = "SELECT first, last, bot, after FROM group_run WHERE bot_group = %s ORDER BY first"
    return conn.execute(query, [group]).fetchall()


def test_outcomes_that_are_decided_together_are_numbered_by_bot(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    group = make_group(conn, alice, "scan")
    one, other = (make_bot(conn, alice, 3, bot_group=group) for _ in range(2))
    alone = make_bot(conn, alice, 2)
    dispatch.feed()
    given = client.ask(100).assignments
    client.ask(0, tuple(success(item) for item in given if item.id.seq < 2))
    dispatch.settle()
    client.ask(0, tuple(success(item) for item in given if item.id.seq == 2))
    dispatch.settle()
    dispatch.feed()
    found = runs(conn, group)
    assert sorted((bot, after) for _, _, bot, after in found) == [
        (one, 0), (one, 2), (other, 0), (other, 2),
    ]  # fmt: skip
    assert [number for first, last, _, _ in found for number in range(first, last + 1)] == [
        *range(1, 7)
    ]
    assert alone not in {bot for _, _, bot, _ in found}
    assert invariants.check(conn, idle=True) == []


def test_outcomes_of_a_group_do_not_wait_for_a_submission_into_it(
    dispatch: Dispatch, dsn: str, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    group = make_group(conn, alice, "scan")
    bot = make_bot(conn, alice, 1, bot_group=group)
    dispatch.feed()
    client.ask(0, tuple(map(success, client.ask(1).assignments)))
    with db.connect(dsn) as rival, rival.transaction():
        assert join(rival, alice, "scan") == group
        joined = make_bot(rival, alice, 1, bot_group=group)
        conn.execute("SET lock_timeout = '1s'")
        dispatch.settle()
        assert runs(conn, group) == [(1, 1, bot, 0)]
    query = "SELECT id FROM bot WHERE bot_group = %s ORDER BY id"
    assert conn.execute(query, [group]).fetchall() == [(bot,), (joined,)]


def test_the_first_bot_of_a_group_makes_it_and_the_next_one_joins_it(
    conn: PostgresConnection, alice: int
) -> None:
    group = join(conn, alice, "scan")
    assert join(conn, alice, "scan") == group
    assert conn.execute("SELECT id, owner, name FROM bot_group").fetchall() == [
        (group, alice, "scan")
    ]


def test_groups_with_shares_get_their_parts_of_an_owners_hosts(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    policy = "Concurrency = 1000; ReplicationRequirements = false"
    large, small = make_group(conn, alice, "large", 2.0), make_group(conn, alice, "small", 1.0)
    bots = {
        "large": make_bot(conn, alice, 60, policy=policy, bot_group=large),
        "small": make_bot(conn, alice, 60, policy=f"Rank = 9; {policy}", bot_group=small),
        "rest": make_bot(conn, alice, 60, policy=f"Rank = 99; {policy}"),
    }
    for _ in range(40):
        dispatch.feed()
        client.ask(1)
    held = [name.bot for name in client.holding]
    parts = {name: held.count(bot) for name, bot in bots.items()}
    assert sum(parts.values()) == 40
    assert abs(parts["large"] - 20) <= 1 and abs(parts["small"] - 10) <= 1, parts


def test_without_shares_rank_alone_orders_an_owners_groups(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, 5, policy="Concurrency = 9", bot_group=make_group(conn, alice, "a"))
    best = make_bot(
        conn, alice, 5, policy="Rank = 1; Concurrency = 9", bot_group=make_group(conn, alice, "b")
    )
    dispatch.feed()
    assert {item.id.bot for item in client.ask(5).assignments} == {best}


def test_a_group_goes_with_its_last_bot(conn: PostgresConnection, alice: int) -> None:
    left, kept = make_group(conn, alice, "left", 2.0), make_group(conn, alice, "kept")
    gone, gone_too, stays = (make_bot(conn, alice, 1, bot_group=of) for of in (left, left, kept))
    for bot in (gone, gone_too):
        assert retention.remove_empty_groups(conn) == 0
        conn.execute("DELETE FROM bot WHERE id = %s", [bot])
    assert retention.remove_empty_groups(conn) == 1
    assert retention.remove_empty_groups(conn) == 0
    assert conn.execute("SELECT id FROM bot_group").fetchall() == [(kept,)]
    assert conn.execute("SELECT id FROM bot").fetchall() == [(stays,)]
    assert join(conn, alice, "left") != left, "who submits makes another one"


def test_a_group_that_a_submission_has_just_joined_stays(
    dsn: str, conn: PostgresConnection, alice: int
) -> None:
    group = make_group(conn, alice, "scan")
    with db.connect(dsn) as rival, rival.transaction():
        rival.execute(sql.load("submission.sql")["lock_owner"], {"owner": alice})
        assert join(rival, alice, "scan") == group
        conn.execute("SET lock_timeout = '1s'")
        assert retention.remove_empty_groups(conn) == 0, "it may get a BOT"
        make_bot(rival, alice, 1, bot_group=group)
    assert retention.remove_empty_groups(conn) == 0
    assert invariants.check(conn, idle=False) == []
