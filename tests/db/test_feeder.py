from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.db.dispatching import Caller, Dispatch, caller, dispatching
from tests.factories import make_bot, make_client, make_lease

from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.feeder.feeding import FEW_BOTS
from gridbot_server.storage.db import PostgresConnection

SLOTS = 64
POLICY = "Concurrency = 1000; Rank = {}"


@pytest.fixture
def dispatch(dsn: str, conn: PostgresConnection, tmp_path: Path) -> Iterator[Dispatch]:
    with dispatching(dsn, conn, tmp_path / "test.buffer", slots=SLOTS) as made:
        yield made


def ready(dispatch: Dispatch) -> dict[int, int]:
    return {item.state.bot: item.fresh for item in dispatch.buffer.segments()}


def claimed(conn: PostgresConnection) -> list[tuple[int, int, int]]:
    return conn.execute("SELECT bot, lo, hi FROM feed_range ORDER BY bot, lo").fetchall()


def test_a_bot_that_comes_when_the_buffer_is_full_gets_its_part(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    early = [make_bot(conn, alice, jobs=100) for _ in range(2)]
    dispatch.feed()
    assert ready(dispatch) == dict.fromkeys(early, SLOTS // 2)

    late = [make_bot(conn, alice, jobs=100) for _ in range(2)]
    dispatch.feed()

    assert ready(dispatch) == dict.fromkeys([*early, *late], SLOTS // 4)


def test_what_was_given_back_is_claimed_by_nobody(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    early = make_bot(conn, alice, jobs=100)
    dispatch.feed()
    late = make_bot(conn, alice, jobs=100)
    dispatch.feed()

    assert claimed(conn) == [(early, 0, SLOTS // 2), (late, 0, SLOTS // 2)]
    fed = conn.execute("SELECT fed FROM bot ORDER BY id").fetchall()
    assert fed == [(SLOTS // 2,), (SLOTS // 2,)]


def test_nothing_is_given_back_while_another_machine_claimed_more(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    early = make_bot(conn, alice, jobs=100)
    dispatch.feed()
    conn.execute("UPDATE bot SET fed = 80 WHERE id = %s", [early])
    other = "INSERT INTO feed_range VALUES (%s, 64, 80, 'other', now() + interval '1 h')"
    conn.execute(other, [early])

    late = make_bot(conn, alice, jobs=100)
    dispatch.feed()

    assert ready(dispatch)[early] == SLOTS
    assert (early, 0, SLOTS) in claimed(conn)
    assert late not in {bot for bot, _, _ in claimed(conn)}


def test_what_was_taken_over_from_a_silent_machine_is_not_given_back(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    early = make_bot(conn, alice, jobs=SLOTS)
    conn.execute("UPDATE bot SET fed = %s", [SLOTS])
    silent = "INSERT INTO feed_range VALUES (%s, 0, %s, 'silent', now() - interval '1 s')"
    conn.execute(silent, [early, SLOTS])
    dispatch.feed()
    assert ready(dispatch) == {early: SLOTS}

    late = make_bot(conn, alice, jobs=SLOTS)
    dispatch.feed()

    # The silent machine's web processes may send any of them.
    assert (early, 0, SLOTS) in claimed(conn)
    assert conn.execute("SELECT fed FROM bot WHERE id = %s", [early]).fetchall() == [(SLOTS,)]
    assert late in ready(dispatch)


def test_what_was_sent_is_not_given_back_though_its_slot_is_ready_again(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    early = make_bot(conn, alice, jobs=SLOTS)
    dispatch.feed()
    # As when the answer to the commit of its lease was lost.
    make_lease(conn, ReplicaId(early, 40, 1), make_client(conn, alice)[0])

    late = make_bot(conn, alice, jobs=SLOTS)
    dispatch.feed()

    assert (early, 0, 41) in claimed(conn)
    assert conn.execute("SELECT fed FROM bot WHERE id = %s", [early]).fetchall() == [(41,)]
    assert late in ready(dispatch)


def test_every_job_is_sent_once_however_often_room_was_made(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bots = []
    for rank in range(6):
        bots.append(make_bot(conn, alice, jobs=50, policy=POLICY.format(rank)))
        dispatch.feed()

    sent: Counter[int] = Counter()
    jobs: set[ReplicaId] = set()
    for _ in range(200):
        given = client.ask(want=7).assignments
        sent.update(item.id.bot for item in given)
        jobs.update(item.id for item in given)
        dispatch.feed()

    assert sent == Counter(dict.fromkeys(bots, 50))
    assert len(jobs) == sum(sent.values())


def test_jobs_are_sent_in_order_of_rank_though_their_bots_came_in_the_other(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    for rank in range(6):
        make_bot(conn, alice, jobs=50, policy=POLICY.format(rank))
        dispatch.feed()

    order = []
    while given := client.ask(want=5).assignments:
        order += [item.id.bot for item in given]
        dispatch.feed()

    assert order == sorted(order, reverse=True)
    assert dispatch.buffer.pulse()[2] == 0


def test_a_bot_that_is_empty_counts_no_inversion_and_one_that_is_dry_does(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, jobs=3, policy=POLICY.format(2))
    dispatch.feed()
    client.ask(want=3)
    client.ask(want=1)
    assert dispatch.buffer.pulse()[2] == 0

    make_bot(conn, alice, jobs=2 * SLOTS, policy=POLICY.format(1))
    dispatch.feed()
    client.ask(want=SLOTS)
    client.ask(want=1)
    assert dispatch.buffer.pulse()[2] == 1


@pytest.fixture
def roomy(dsn: str, conn: PostgresConnection, tmp_path: Path) -> Iterator[Dispatch]:
    with dispatching(dsn, conn, tmp_path / "roomy.buffer", slots=2 * FEW_BOTS + 28) as made:
        yield made


def test_where_bots_are_many_most_passes_bring_only_what_was_taken(
    roomy: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    dispatch, client = roomy, caller(roomy, alice)
    bots = [make_bot(conn, alice, jobs=9, policy=POLICY.format(-n)) for n in range(FEW_BOTS + 1)]
    assert dispatch.feeder.run_once(1000.0) == 2 * len(bots)
    late = make_bot(conn, alice, jobs=9)
    given = [item.id for item in client.ask(2).assignments]
    assert [name.bot for name in given] == [bots[0]] * 2

    assert dispatch.feeder.run_once(1000.01) == 2  # of the BOT of which two were taken
    assert ready(dispatch).keys() == {*bots}
    running = {item.state.bot: item.state.running for item in dispatch.buffer.segments()}
    assert {bot: count for bot, count in running.items() if count} == {bots[0]: 2}

    dispatch.feeder.run_once(1001.0)
    assert ready(dispatch).keys() == {*bots, late}


def test_of_many_bots_one_that_is_held_while_some_are_taken_is_not_served_any_more(
    roomy: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    dispatch, client = roomy, caller(roomy, alice)
    bots = [make_bot(conn, alice, jobs=9, policy=POLICY.format(-n)) for n in range(FEW_BOTS + 1)]
    dispatch.feeder.run_once(1000.0)
    client.ask(1)
    conn.execute("UPDATE bot SET held = 'to be looked at' WHERE id = %s", [bots[0]])

    dispatch.feeder.run_once(1000.01)
    assert ready(dispatch).keys() == {*bots[1:]}


def test_the_oldest_bots_are_served_for_which_the_buffer_has_a_slot_each(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bots = [make_bot(conn, alice, jobs=9) for _ in range(SLOTS + 1)]
    dispatch.feed()
    assert ready(dispatch) == dict.fromkeys(bots[:-1], 1)
    conn.execute("UPDATE bot SET state = 'cancelled' WHERE id = %s", [bots[0]])
    dispatch.feed()
    assert ready(dispatch).keys() == {*bots[1:]}


def test_no_more_copies_are_claimed_than_there_is_room_for_whatever_the_planner_expects(
    dsn: str, conn: PostgresConnection, alice: int, tmp_path: Path
) -> None:
    room, copies = 4, 12
    bot, (client, _) = make_bot(conn, alice, jobs=copies), make_client(conn, alice)
    conn.execute("UPDATE bot SET fed = size WHERE id = %s", [bot])
    for seq in range(copies):
        make_lease(conn, ReplicaId(bot, seq, 1), client)
    queue_copies(conn, bot, range(1))
    conn.execute("ANALYZE requeue")  # which from now on is taken for a table of one row
    queue_copies(conn, bot, range(1, copies))
    with dispatching(dsn, conn, tmp_path / "small.buffer", slots=room) as dispatch:
        dispatch.feed()
    (count,) = conn.execute("SELECT count(*) FROM requeue WHERE machine IS NOT NULL").fetchall()
    assert count == (room,)


def queue_copies(conn: PostgresConnection, bot: int, jobs: range) -> None:
    """Queue the second copies of jobs."""
    conn.execute(
        "INSERT INTO requeue (bot, seq, replica, round, why, not_before)"
        " SELECT %s, seq, 2, 0, 'tail', now() FROM generate_series(%s::bigint, %s) AS seq",
        [bot, jobs.start, jobs.stop - 1],
    )
    conn.execute(
        "INSERT INTO bot_stat (bot, writer, name, value) VALUES (%s, 'test', 'queued', %s)"
        " ON CONFLICT (bot, writer, name) DO UPDATE SET value = bot_stat.value + excluded.value",
        [bot, len(jobs)],
    )
