"""Claims about silent clients: their jobs get copies, and they lose nothing when they come back."""

from __future__ import annotations

import pytest
from tests.db.dispatching import Caller, Dispatch, caller, success
from tests.factories import make_bot, make_client, make_host

from gridbot_client.protocol.messages import ReplicaId, WorkRequest
from gridbot_server.cycles.silence import SQL, Silence
from gridbot_server.storage import invariants
from gridbot_server.storage.db import Connection

LEAST = 60.0


class Passes:
    """The cycle, at times of its own, of a server that has run for an hour."""

    def __init__(self, conn: Connection, **options: int) -> None:
        self.conn, self.cycle, self.now = conn, Silence(LEAST, **options), 0.0
        self.skip(3600)

    def skip(self, seconds: float) -> int:
        """Make a pass each 25 seconds; return how many jobs were woken."""
        woken, until = 0, self.now + seconds
        while self.now < until:
            self.now = min(self.now + 25, until)
            woken += self.cycle.run_once(self.conn, self.now)
        return woken

    def run(self) -> int:
        return self.skip(1)


@pytest.fixture
def one_job(dispatch: Dispatch, conn: Connection, alice: int) -> None:
    """A BOT of one job, which waits to be sent."""
    make_bot(conn, alice, 1)
    dispatch.feed()


@pytest.fixture
def passes(conn: Connection) -> Passes:
    return Passes(conn)


def leave(conn: Connection, seconds: float) -> None:
    """Let all clients have been heard of that long ago."""
    conn.execute("UPDATE client SET seen_at = now() - make_interval(secs => %s)", [seconds])


def silent(conn: Connection) -> int:
    row = conn.execute("SELECT count(*) FROM client WHERE silent_since IS NOT NULL").fetchone()
    assert row is not None
    return int(row[0])


def counts(conn: Connection, bot: int) -> tuple[int, ...]:
    """Replicas of silent clients, jobs that nobody else has, copies of them that wait."""
    row = conn.execute("SELECT * FROM silent_count(%s)", [bot]).fetchone()
    assert row is not None
    return tuple(row)


def test_jobs_of_a_silent_client_are_sent_to_another_client_of_its_machine(
    dispatch: Dispatch, conn: Connection, alice: int, passes: Passes
) -> None:
    host = make_host(conn, alice)
    lost, second = caller(dispatch, alice, host), caller(dispatch, alice, host)
    bot = make_bot(conn, alice, 3)
    dispatch.feed()
    assert len(lost.ask(3).assignments) == 3
    leave(conn, LEAST + 1)
    assert passes.run() == 3
    assert passes.run() == 0
    dispatch.settle()
    assert counts(conn, bot) == (3, 3, 3)
    dispatch.feed()
    given = second.ask(10).assignments
    assert sorted(item.id for item in given) == [ReplicaId(bot, seq, 2) for seq in range(3)]
    assert counts(conn, bot) == (3, 0, 0)
    assert invariants.check(conn, idle=False) == []
    second.ask(0, tuple(map(success, given)))
    dispatch.settle()
    assert conn.execute("SELECT state, done FROM bot").fetchall() == [("done", 3)]
    assert conn.execute("SELECT FROM lease").fetchall() == []
    assert invariants.check(conn, idle=True) == []


def test_a_client_that_speaks_again_is_silent_no_more_and_its_answer_counts(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller, passes: Passes
) -> None:
    bot = make_bot(conn, alice, 1)
    dispatch.feed()
    (given,) = client.ask(1).assignments
    leave(conn, LEAST + 1)
    passes.run()
    assert silent(conn) == 1
    dispatch.settle()
    dispatch.feed()
    assert client.ask(10).assignments == ()  # it has the job already
    assert (silent(conn), counts(conn, bot)) == (0, (0, 0, 0))
    client.ask(0, (success(given),))
    dispatch.settle()
    assert conn.execute("SELECT state, done FROM bot").fetchall() == [("done", 1)]
    assert conn.execute("SELECT FROM requeue").fetchall() == []
    assert invariants.check(conn, idle=True) == []


def test_both_clients_of_a_machine_may_answer_and_one_answer_is_kept(
    dispatch: Dispatch, conn: Connection, alice: int, passes: Passes
) -> None:
    host = make_host(conn, alice)
    first, second = caller(dispatch, alice, host), caller(dispatch, alice, host)
    make_bot(conn, alice, 1)
    dispatch.feed()
    (lost,) = first.ask(1).assignments
    leave(conn, LEAST + 1)
    passes.run()
    dispatch.settle()
    dispatch.feed()
    (copy,) = second.ask(1).assignments
    first.ask(0)
    assert invariants.check(conn, idle=False) == []
    first.ask(0, (success(lost),))
    second.ask(0, (success(copy),))
    dispatch.settle()
    assert conn.execute("SELECT seq, canonical FROM outcome").fetchall() == [(0, 1)]
    assert invariants.check(conn, idle=True) == []


def test_one_machine_is_one_vote_also_if_its_former_client_was_silent(
    dispatch: Dispatch, conn: Connection, alice: int, passes: Passes
) -> None:
    host = make_host(conn, alice)
    first, second = caller(dispatch, alice, host), caller(dispatch, alice, host)
    make_bot(conn, alice, 1, quorum=2)
    dispatch.feed()
    (lost,) = first.ask(1).assignments
    leave(conn, LEAST + 1)
    passes.run()
    dispatch.settle()
    dispatch.feed()
    (copy,) = second.ask(5).assignments
    second.ask(0, (success(copy),))
    first.ask(0, (success(lost),))
    dispatch.settle()
    assert conn.execute("SELECT FROM outcome").fetchall() == []
    dispatch.feed()
    other = caller(dispatch, alice)
    other.ask(0, tuple(map(success, other.ask(5).assignments)))
    dispatch.settle()
    assert conn.execute("SELECT state FROM bot").fetchall() == [("done",)]
    assert invariants.check(conn, idle=True) == []


@pytest.mark.usefixtures("one_job")
def test_who_is_heard_of_between_the_look_and_the_mark_is_not_silent(
    conn: Connection, client: Caller
) -> None:
    client.ask(1)
    row = conn.execute("SELECT id, seen_at FROM client").fetchone()
    assert row is not None
    client.ask(0)
    found = {"clients": [row[0]], "seen_at": [row[1]]}
    conn.execute(SQL["silence"], found)
    assert silent(conn) == 0
    assert conn.execute("SELECT FROM pending").fetchall() == []


def waiting(client: Caller) -> WorkRequest:
    """A request that may wait for work."""
    plain = client.request(1)
    return WorkRequest(plain.key, plain.seqno, plain.host, 1, plain.holding, wait=50.0)


@pytest.mark.usefixtures("one_job")
def test_a_client_with_work_whose_request_waits_for_more_is_missed_as_soon_as_others(
    conn: Connection, client: Caller, passes: Passes
) -> None:
    client.take(client.send(waiting(client)))
    assert len(client.holding) == 1
    client.take(client.send(waiting(client)))
    leave(conn, LEAST - 5)
    assert passes.run() == 0
    leave(conn, LEAST + 1)
    assert passes.run() == 1


@pytest.mark.usefixtures("one_job")
def test_a_client_that_got_work_after_its_request_had_waited_asks_soon(
    conn: Connection, client: Caller, passes: Passes
) -> None:
    client.take(client.send(waiting(client)))
    leave(conn, LEAST + 1)
    assert passes.run() == 1


@pytest.mark.usefixtures("one_job")
def test_a_stock_client_is_given_the_time_that_the_server_tells_it(
    conn: Connection, client: Caller, passes: Passes
) -> None:
    client.ask(1)
    conn.execute("INSERT INTO boinc_client (client, owner, cpid, machine, place)"
                 " SELECT id, owner, 'c', 'm', 'p' FROM client")  # fmt: skip
    leave(conn, 1700)
    assert passes.run() == 0
    leave(conn, 1900)
    assert passes.run() == 1


@pytest.mark.usefixtures("one_job")
def test_clients_of_an_older_server_are_not_silent_before_they_were_told_an_interval(
    conn: Connection, client: Caller, passes: Passes
) -> None:
    client.ask(1)
    conn.execute("UPDATE client SET contact_seconds = NULL")
    leave(conn, 10**6)
    assert passes.run() == 0


@pytest.mark.usefixtures("one_job")
def test_nobody_is_silent_because_the_server_was_away(conn: Connection, client: Caller) -> None:
    client.ask(1)
    leave(conn, 1000)
    started = Silence(LEAST)
    assert started.run_once(conn, 1000.0) == 0
    now = 1000.0
    while now < 3000:  # back-off of twice as long as the server was away
        now += 20
        assert started.run_once(conn, now) == 0
    assert sum(started.run_once(conn, now + seconds) for seconds in range(10, 100, 10)) == 1


@pytest.mark.usefixtures("one_job")
def test_nobody_is_silent_because_the_servers_machine_slept(
    conn: Connection, client: Caller, passes: Passes
) -> None:
    client.ask(1)
    leave(conn, 500)
    passes.now += 500
    assert passes.skip(1000) == 0
    assert passes.skip(200) == 1


def test_each_client_is_looked_at_though_one_pass_looks_at_few(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    few = Passes(conn, most=2)
    make_bot(conn, alice, 5)
    dispatch.feed()
    for _ in range(5):
        assert len(caller(dispatch, alice).ask(1).assignments) == 1
    make_client(conn, alice)  # holds nothing
    leave(conn, 100)
    assert [few.run() for _ in range(4)] == [2, 2, 1, 0]
    assert silent(conn) == 5
    conn.execute("UPDATE client SET silent_since = NULL WHERE id > 4")
    assert few.skip(100) == 1
