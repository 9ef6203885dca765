from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from queue import SimpleQueue
from typing import TypeVar

import pytest
from psycopg import sql
from tests.db.dispatching import Caller, Dispatch, caller, failure, success
from tests.factories import make_bot, make_host, make_owner

from gridbot_client.protocol.messages import WHY, Output, ReplicaId, Report, WorkReply, WorkRequest
from gridbot_server.bots.cancelling import cancel_jobs
from gridbot_server.buffer.assignment import prepared
from gridbot_server.buffer.layout import Item
from gridbot_server.cycles import deadline, replication, transitioner
from gridbot_server.dispatch.batch import Exchange, find_clients
from gridbot_server.dispatch.engine import BATCH_REQUESTS
from gridbot_server.dispatch.engine import Queued as Answered
from gridbot_server.dispatch.leases import NewLease, add_leases
from gridbot_server.dispatch.reports import settle_reports
from gridbot_server.dispatch.widths import Widths
from gridbot_server.errors import DatabaseAway, InternalError
from gridbot_server.signing import keys
from gridbot_server.storage import db, invariants
from gridbot_server.storage.counters import Counters
from gridbot_server.storage.db import PostgresConnection

T = TypeVar("T")

REPLICATE = "ReplicationRequirements = Tail && NumberOfReplicas < 2"


@pytest.fixture
def rival(dsn: str) -> Iterator[PostgresConnection]:
    """Another process's connection, whose transaction the test ends."""
    with db.connect(dsn) as connection:
        connection.execute("SELECT 1")  # cycles end their transactions, but not this one
        yield connection


@pytest.fixture(autouse=True)
def _in_order(dispatch: Dispatch, conn: PostgresConnection) -> Iterator[None]:
    yield
    assert [str(item) for item in invariants.check(conn, idle=False)] == []


@contextmanager
def meanwhile(conn: PostgresConnection, action: Callable[[], T]) -> Iterator[Future[T]]:
    """Begin an action that will wait for a lock; go on when it waits, and see it end."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(action)
        end = time.monotonic() + 20
        while not _waits(conn):
            assert not future.done() and time.monotonic() < end, "it did not wait for a lock"
            time.sleep(0.01)
        yield future
        future.result(20)


def _waits(conn: PostgresConnection) -> bool:
    query = (
        "SELECT FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    return conn.execute(query).fetchone() is not None


def leases(conn: PostgresConnection, bot: int) -> list[tuple[int, int]]:
    query = "SELECT seq, replica FROM lease WHERE bot = %s ORDER BY 1, 2"
    return conn.execute(query, [bot]).fetchall()


def put_slot(dispatch: Dispatch, name: ReplicaId, why: str = "first", detail: bytes = b"") -> None:
    body = prepared(name, "0" * 64, '{"i":0}', "[]")
    item = Item(name.bot, name.seq, name.replica, 0, WHY.index(why), body, detail)
    assert dispatch.buffer.put([item], 0.0) == 1


def test_an_answer_that_crosses_its_deadline_is_not_lost(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, rival: PostgresConnection
) -> None:
    make_bot(conn, alice)
    client = caller(dispatch, alice)
    dispatch.feed()
    (item,) = client.ask().assignments
    conn.execute("UPDATE lease SET deadline = now() - interval '1 s'")
    assert deadline.run_once(rival) == 1
    with meanwhile(conn, lambda: client.ask(reports=(success(item),))) as reply:
        rival.commit()
    assert reply.result().acks == (item.id,)
    assert conn.execute("SELECT how FROM ended").fetchall() == [("success",)]


def test_who_loses_a_deadlock_is_served_when_it_comes_again_and_counts_once(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, rival: PostgresConnection,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    _look_late_for_deadlocks(conn)
    make_bot(conn, alice)
    client = caller(dispatch, alice)
    dispatch.feed()
    (item,) = client.ask().assignments
    rival.execute("SET deadlock_timeout = '1h'")  # it is the others who notice
    rival.execute("SELECT FROM lease WHERE (bot, seq, replica) = (%s, %s, %s) FOR UPDATE", item.id)
    request = client.request(want=0, reports=(success(item),))
    with meanwhile(conn, lambda: _until_served(client, request)) as reply:
        mine = [keys.token_hash(client.token)]
        rival.execute("SELECT FROM client WHERE hash = %s FOR UPDATE", mine)
        rival.commit()
    assert reply.result().acks == (item.id,)
    assert "attempt 1: deadlock detected" in caplog.text
    assert conn.execute("SELECT how FROM ended").fetchall() == [("success",)]


def _until_served(client: Caller, request: WorkRequest) -> WorkReply:
    while True:
        with suppress(DatabaseAway):
            return client.send(request)


def _look_late_for_deadlocks(conn: PostgresConnection) -> None:
    """Let new connections wait long enough to be sure to be in a deadlock before they look."""
    (database,) = conn.execute("SELECT current_database()").fetchone() or ("",)
    change = sql.SQL("ALTER DATABASE {} SET deadlock_timeout = '8s'")
    conn.execute(change.format(sql.Identifier(database)))


def test_a_stale_slot_is_refused_while_its_replica_is_being_reported(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, rival: PostgresConnection
) -> None:
    make_bot(conn, alice)
    client, other = caller(dispatch, alice), caller(dispatch, alice)
    dispatch.feed()
    (item,) = client.ask().assignments
    put_slot(dispatch, item.id)
    _report(rival, client, success(item))
    with meanwhile(conn, other.ask) as reply:
        rival.commit()
    assert reply.result().assignments == ()


def test_dispatch_that_waits_for_a_cancellation_of_its_jobs_sends_none(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, rival: PostgresConnection
) -> None:
    bot, client = make_bot(conn, alice, jobs=2), caller(dispatch, alice)
    dispatch.feed()
    assert cancel_jobs(rival, bot, [0, 1]) == [0, 1]
    with meanwhile(conn, client.ask) as reply:
        rival.commit()
    assert reply.result().assignments == ()


def test_a_cancellation_that_waits_for_dispatch_ends_what_was_sent(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, rival: PostgresConnection, dsn: str
) -> None:
    bot, client = make_bot(conn, alice, jobs=2), caller(dispatch, alice)
    dispatch.feed()
    first = NewLease(ReplicaId(bot, 0, 1), 0, "first", _exchange(rival, client), 60.0, False)
    counters = Counters()
    assert add_leases(rival, [first], counters) == [first]
    counters.write(rival, "rival")
    with (
        db.connect(dsn, autocommit=True) as other,
        meanwhile(conn, lambda: cancel_jobs(other, bot, [0])) as cancelled,
    ):
        rival.commit()
    assert cancelled.result() == [0]
    assert leases(conn, bot) == []


def test_dispatch_of_a_copy_and_a_first_copy_goes_before_their_cancellation(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, rival: PostgresConnection, dsn: str
) -> None:
    bot, client = make_bot(conn, alice, jobs=2, max_attempts=2), caller(dispatch, alice)
    dispatch.feed()
    client.ask(0, tuple(failure(item) for item in client.ask(1).assignments))
    dispatch.settle()
    other = caller(dispatch, alice)
    copy = NewLease(ReplicaId(bot, 0, 2), 0, "error", _exchange(rival, other), 60.0, False)
    first = copy._replace(id=ReplicaId(bot, 1, 1), why="first")
    counters = Counters()
    assert add_leases(rival, [copy], counters) == [copy]
    with (
        db.connect(dsn, autocommit=True) as canceller,
        meanwhile(conn, lambda: cancel_jobs(canceller, bot, [0, 1])) as cancelled,
    ):
        assert add_leases(rival, [first], counters) == [first]
        counters.write(rival, "rival")
        rival.commit()
    assert cancelled.result() == [0, 1]
    assert leases(conn, bot) == []


def test_a_request_that_cannot_be_served_spoils_no_other_one(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, rival: PostgresConnection
) -> None:
    make_bot(conn, alice, jobs=2)
    first, broken, good = (caller(dispatch, alice) for _ in range(3))
    dispatch.feed()
    (item,) = broken.ask(want=1).assignments
    output = success(item).outputs[0]
    twice = replace(success(item), outputs=(output, output))  # no body that comes in says this
    rival.execute("SELECT FROM client WHERE hash = %s FOR UPDATE", [keys.token_hash(first.token)])
    answered: SimpleQueue[Answered] = SimpleQueue()
    with meanwhile(conn, lambda: first.ask(want=0)):
        # They queue while the first one waits, and so are served together.
        for who, reports in ((broken, (twice,)), (good, ())):
            token_hash = keys.token_hash(who.token)
            dispatch.engine.take(token_hash, who.request(1, reports), answered.put)
        rival.commit()
        refused, given = (answered.get(timeout=20) for _ in range(2))
    with pytest.raises(InternalError):
        refused.result()
    assert len(given.result().assignments) == 1
    assert leases(conn, item.id.bot) == [(0, 1), (1, 1)]


def _exchange(conn: PostgresConnection, who: Caller, reports: tuple[Report, ...] = ()) -> Exchange:
    token_hash = keys.token_hash(who.token)
    request = who.request(want=0, reports=reports)
    client = find_clients(conn, {token_hash: request})[token_hash]
    return Exchange(client, request)


def _report(rival: PostgresConnection, who: Caller, *reports: Report) -> None:
    """Do as a web process that takes reports."""
    counters = Counters()
    settle_reports(rival, [_exchange(rival, who, reports)], counters)
    counters.write(rival, "rival")


def test_two_slots_of_one_replica_are_one_lease(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = make_bot(conn, alice)
    dispatch.feed()
    put_slot(dispatch, ReplicaId(bot, 0, 1))
    assert len(caller(dispatch, alice).ask().assignments) == 1
    assert dispatch.buffer.contents() == []


def test_a_reply_has_what_may_be_sent_without_what_another_client_holds_or_has_reported(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot, client = make_bot(conn, alice, jobs=4), caller(dispatch, alice)
    dispatch.feed()
    first, second = client.ask(want=2).assignments
    client.ask(want=0, reports=(success(second),))
    for stale in (first, second):
        put_slot(dispatch, stale.id)
    given = caller(dispatch, alice).ask().assignments
    assert [item.id for item in given] == [ReplicaId(bot, seq, 1) for seq in (2, 3)]
    assert leases(conn, bot) == [(0, 1), (2, 1), (3, 1)]
    assert dispatch.buffer.contents() == []


def test_a_host_never_gets_two_copies_of_a_job_in_one_reply(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = make_bot(conn, alice, quorum=3)
    host = make_host(conn, alice)
    dispatch.feed()
    caller(dispatch, alice).ask()
    dispatch.feed()
    assert len(caller(dispatch, alice, host).ask().assignments) == 1
    assert caller(dispatch, alice, host).ask().assignments == ()
    dispatch.feed()
    assert len(caller(dispatch, alice).ask().assignments) == 1
    assert leases(conn, bot) == [(0, 1), (0, 2), (0, 3)]


def test_a_late_answer_and_the_one_to_a_copy_are_no_quorum(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = make_bot(conn, alice, quorum=2)
    host = make_host(conn, alice)
    client, neighbour = caller(dispatch, alice, host), caller(dispatch, alice, host)
    other = caller(dispatch, alice)
    dispatch.feed()
    (late,) = client.ask().assignments
    dispatch.expire(late.id)
    dispatch.feed()
    (copy,) = neighbour.ask().assignments
    neighbour.ask(want=0, reports=(success(copy),))
    client.ask(want=0, reports=(success(late),))
    dispatch.settle()
    assert conn.execute("SELECT FROM outcome WHERE bot = %s", [bot]).fetchall() == []
    dispatch.feed()
    other.ask(want=0, reports=tuple(success(item) for item in other.ask(want=1).assignments))
    dispatch.settle()
    row = conn.execute("SELECT canonical FROM outcome WHERE bot = %s", [bot]).fetchone()
    assert row in [(late.id.replica,), (copy.id.replica,)]


def test_a_copy_that_leaves_while_its_job_is_finished_is_called_back(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, rival: PostgresConnection, dsn: str
) -> None:
    bot = make_bot(conn, alice, policy=REPLICATE)
    client, other = caller(dispatch, alice), caller(dispatch, alice)
    (item,) = _replicated(dispatch, client)
    client.ask(want=0, reports=(success(item),))
    _send_copy(rival, bot, other)
    with (
        db.connect(dsn, autocommit=True) as own,
        meanwhile(conn, lambda: transitioner.run_once(own)),
    ):
        rival.commit()
    assert leases(conn, bot) == []
    assert other.ask().assignments == ()


def _replicated(dispatch: Dispatch, client: Caller) -> list[ReplicaId]:
    """Let the client hold the BOT's jobs, and copies of them wait in the buffer."""
    dispatch.feed()
    held = [item.id for item in client.ask().assignments]
    dispatch.feed()
    assert replication.run_once(dispatch.conn, time.time()) == len(held)
    dispatch.feed()
    return held


def test_a_copy_that_leaves_while_its_job_is_looked_at_is_not_overlooked(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, rival: PostgresConnection, dsn: str
) -> None:
    bot = make_bot(conn, alice, policy=REPLICATE)
    client, other = caller(dispatch, alice), caller(dispatch, alice)
    (item,) = _replicated(dispatch, client)
    client.ask(want=0, reports=(failure(item),))
    rival.execute("LOCK TABLE requeue")
    _send_copy(rival, bot, other)
    with (
        db.connect(dsn, autocommit=True) as own,
        meanwhile(conn, lambda: transitioner.run_once(own)),
    ):
        rival.commit()
    assert leases(conn, bot) == [(0, 2)]
    assert conn.execute("SELECT FROM requeue").fetchall() == []


def _send_copy(rival: PostgresConnection, bot: int, other: Caller) -> None:
    """Do as a web process that gives the second replica of job 0 away."""
    exchange = _exchange(rival, other)
    copy = NewLease(ReplicaId(bot, 0, 2), 0, "tail", exchange, 60.0, False)
    counters = Counters()
    assert add_leases(rival, [copy], counters) == [copy]
    counters.write(rival, "rival")


def test_two_web_processes_together_give_a_crew_no_more_than_its_width(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, rival: PostgresConnection
) -> None:
    bot = make_bot(conn, alice, jobs=40, signature=b"by the project")
    owner = make_owner(conn, "bob")
    one, other = caller(dispatch, owner), caller(dispatch, owner)
    dispatch.feed()
    exchange = _exchange(rival, one)
    room = Widths.of(rival, [exchange], matters=True).room(exchange.client)
    assert room == 8
    counters = Counters()
    sent = [
        NewLease(ReplicaId(bot, seq, 1), 0, "first", exchange, 60.0, True, is_bounded=True)
        for seq in range(room)
    ]
    assert len(add_leases(rival, sent, counters)) == room
    counters.write(rival, "rival")
    with meanwhile(conn, other.ask) as reply:
        rival.commit()
    assert reply.result().assignments == ()


def test_a_job_that_ends_while_it_is_replicated_gets_no_copy(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, rival: PostgresConnection, dsn: str
) -> None:
    make_bot(conn, alice, policy=REPLICATE)
    client = caller(dispatch, alice)
    dispatch.feed()
    (item,) = client.ask().assignments
    dispatch.feed()
    rival.execute("LOCK TABLE host")
    with (
        db.connect(dsn, autocommit=True) as own,
        meanwhile(conn, lambda: replication.run_once(own, time.time())),
    ):
        _report(rival, client, success(item))
        transitioner.run_once(rival)
        rival.commit()
    assert conn.execute("SELECT state FROM bot").fetchall() == [("done",)]


def test_a_bot_that_no_host_suits_leaves_room_for_the_next(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    make_bot(conn, alice, jobs=1000, policy="JobRequirements = false")
    dispatch.feed()
    bot = make_bot(conn, alice, jobs=1000)
    dispatch.feed()
    dispatch.feed()
    assert {item.id.bot for item in caller(dispatch, alice).ask().assignments} == {bot}


def test_a_forged_report_in_the_same_batch_does_not_displace_the_honest_one(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = make_bot(conn, alice, jobs=1)
    honest, liar = caller(dispatch, alice), caller(dispatch, make_owner(conn, "mallory"))
    dispatch.feed()
    item = honest.ask().assignments[0]
    lie = replace(success(item, "lie"), outputs=(Output("stdout", "0" * 64, 10**6),))
    exchanges = [
        _exchange(conn, honest, (success(item),)),
        _exchange(conn, liar, (success(item, "lie"),)),
        _exchange(conn, caller(dispatch, alice), (lie,)),
    ]
    counters = Counters()
    with conn.transaction():
        settle_reports(conn, exchanges, counters)
        counters.write(conn, "test")
    dispatch.settle()
    assert [exchange.reupload for exchange in exchanges] == [[], [], [item.id]]
    row = conn.execute("SELECT content FROM output WHERE bot = %s", [bot]).fetchone()
    assert row == (b"42",)


def test_reports_go_ahead_of_requests_that_only_ask(
    dispatch: Dispatch, conn: PostgresConnection, rival: PostgresConnection
) -> None:
    strangers = [keys.token_hash(f"token {number}") for number in range(2 * BATCH_REQUESTS + 1)]
    asks = Caller(dispatch, "").request()
    answered: SimpleQueue[bytes] = SimpleQueue()

    def begin(stranger: bytes, request: WorkRequest) -> None:
        dispatch.engine.take(stranger, request, lambda item: answered.put(item.token_hash))

    rival.execute("LOCK TABLE client")
    begin(strangers[0], asks)
    with meanwhile(conn, lambda: answered.get(timeout=20)):
        for stranger in strangers[1:-1]:
            begin(stranger, asks)
        begin(strangers[-1], replace(asks, reports=(success(ReplicaId(1, 0, 1)),)))
        rival.rollback()
    order = [answered.get(timeout=20) for _ in strangers[1:]]
    assert order == [strangers[-1], *strangers[1:-1]]
