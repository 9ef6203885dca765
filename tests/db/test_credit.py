from __future__ import annotations

import math

import pytest
from tests.db.dispatching import Caller, Dispatch, caller, success
from tests.factories import HOST, make_bot, make_host, make_owner

from gridbot_client.protocol.messages import Manifest, ReplicaId, Resources
from gridbot_server.credit.rule import CREDIT_PER_SECOND
from gridbot_server.cycles import transitioner
from gridbot_server.storage import db, invariants
from gridbot_server.storage.db import Connection

MANIFEST = Manifest("alice", ("echo", "{i}"), {"i": "int"})


def worked(dispatch: Dispatch, client: Caller, *replicas: ReplicaId, seconds: float = 600) -> None:
    """Let a client report replicas that were sent to it so long ago."""
    for name in replicas:
        dispatch.conn.execute(
            "UPDATE lease SET sent_at = now() - make_interval(secs => %s)"
            " WHERE (bot, seq, replica) = (%s, %s, %s)",
            [seconds, *name],
        )
    client.ask(want=0, reports=tuple(success(name) for name in replicas))


def totals(conn: Connection, table: str) -> list[float]:
    key = {"host_credit": "host", "volunteer": "owner", "team": "id"}[table]
    return [row[0] for row in conn.execute(f"SELECT total FROM {table} ORDER BY {key}".encode())]


def test_credit_is_the_time_that_the_server_saw_pass(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    resources = Resources(cpus=2, seconds=3600)
    manifest = Manifest("alice", ("echo", "{i}"), {"i": "int"}, resources=resources)
    bot = make_bot(conn, alice, manifest=manifest.text())
    dispatch.feed()
    client.ask()
    worked(dispatch, client, ReplicaId(bot, 0, 1))
    dispatch.settle()
    # The report says that it took two seconds.
    earned = [pytest.approx(2 * 600 * CREDIT_PER_SECOND, rel=0.01)]
    assert totals(conn, "host_credit") == totals(conn, "volunteer") == earned
    average = conn.execute("SELECT average FROM volunteer").fetchone()
    assert average == (pytest.approx(totals(conn, "volunteer")[0] * math.log(2) / 7),)


def test_a_late_report_earns_no_more_than_the_job_may_run(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    manifest = Manifest("alice", ("echo", "{i}"), {"i": "int"}, resources=Resources(seconds=60))
    bot = make_bot(conn, alice, manifest=manifest.text())
    dispatch.feed()
    client.ask()
    worked(dispatch, client, ReplicaId(bot, 0, 1), seconds=86_400)
    dispatch.settle()
    assert totals(conn, "host_credit") == [pytest.approx(60 * CREDIT_PER_SECOND, rel=0.01)]


def test_honest_and_liar_fast_and_slow_earn_the_same_for_a_job(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    liar = {**HOST, "Flops": 1e15, "NumCpus": 4096}
    clients = [
        caller(dispatch, alice, make_host(conn, alice)),
        caller(dispatch, alice, make_host(conn, alice, liar)),
    ]
    clients[1].host = liar
    bot = make_bot(conn, alice, quorum=2, policy="Concurrency = 9")
    for replica, (client, seconds) in enumerate(zip(clients, (60, 6000), strict=True), 1):
        dispatch.feed()
        assert [item.id for item in client.ask().assignments] == [ReplicaId(bot, 0, replica)]
        worked(dispatch, client, ReplicaId(bot, 0, replica), seconds=seconds)
    dispatch.settle()
    honest, lied = totals(conn, "host_credit")
    assert honest == lied > 0


def test_what_was_told_before_is_credited_once(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice)
    dispatch.feed()
    client.ask()
    replica = ReplicaId(bot, 0, 1)
    worked(dispatch, client, replica)
    dispatch.settle()
    before = totals(conn, "host_credit")
    for _ in range(3):
        worked(dispatch, client, replica)
        conn.execute("INSERT INTO pending VALUES (%s, 0)", [bot])
        dispatch.settle()
    assert totals(conn, "host_credit") == before != [0]


def test_a_late_answer_earns_once_what_the_others_earned(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    first, second = caller(dispatch, alice), caller(dispatch, alice)
    bot = make_bot(conn, alice)
    dispatch.feed()
    first.ask()
    dispatch.expire(ReplicaId(bot, 0, 1))
    dispatch.feed()
    second.ask()
    worked(dispatch, second, ReplicaId(bot, 0, 2))
    dispatch.settle()
    for _ in range(2):
        worked(dispatch, first, ReplicaId(bot, 0, 1))
        dispatch.settle()
    late, in_time = totals(conn, "host_credit")
    assert late == in_time > 0
    assert invariants.check(conn, idle=True) == []


def test_a_transitioner_that_dies_before_its_commit_has_granted_nothing(
    dispatch: Dispatch, conn: Connection, dsn: str, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=3, policy="Concurrency = 9")
    dispatch.feed()
    client.ask()
    worked(dispatch, client, *(ReplicaId(bot, seq, 1) for seq in range(3)))
    with db.connect(dsn) as dying:
        dying.execute("SELECT 1")  # begins what is never committed
        assert transitioner.run_once(dying) == 3
        assert len(totals(dying, "host_credit")) == 1
        dying.close()
    assert totals(conn, "host_credit") == []
    while dispatch.settle() == 0:  # until PostgreSQL has noticed
        pass
    assert totals(conn, "host_credit") == [pytest.approx(3 * 600 * CREDIT_PER_SECOND, rel=0.01)]
    dispatch.feed()
    assert invariants.check(conn, idle=True) == []


def test_wrong_answers_and_errors_earn_nothing(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    clients = [caller(dispatch, alice) for _ in range(3)]
    bot = make_bot(conn, alice, quorum=2, policy="Concurrency = 9")
    for replica, text in ((1, "42"), (2, "43"), (3, "42")):
        dispatch.feed()
        clients[replica - 1].ask()
        clients[replica - 1].ask(0, (success(ReplicaId(bot, 0, replica), text),))
        dispatch.settle()
    hosts = conn.execute(
        "SELECT replica FROM ended e JOIN host_credit c ON c.host = e.host ORDER BY replica"
    )
    assert hosts.fetchall() == [(1,), (3,)]


def test_a_team_has_what_its_members_earn_while_they_are_in_it(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bob = make_owner(conn, "bob")
    conn.execute("INSERT INTO team (name, founder) VALUES ('owls', %s)", [alice])
    conn.execute("INSERT INTO volunteer (owner, team) VALUES (%s, 1), (%s, 1)", [alice, bob])
    make_bot(conn, alice, jobs=3, policy="Concurrency = 1")
    clients = [caller(dispatch, alice) for _ in range(3)]
    for seq, client in enumerate(clients):
        dispatch.feed()
        (item,) = client.ask(want=1).assignments
        worked(dispatch, client, item.id)
        dispatch.settle()
        if seq == 1:
            conn.execute("UPDATE volunteer SET team = NULL WHERE owner = %s", [alice])
    alices, bobs = totals(conn, "volunteer")
    assert totals(conn, "team") == [pytest.approx(alices * 2 / 3, rel=0.01)]
    assert bobs == 0


def test_a_recent_average_halves_in_a_week_and_is_nothing_after_a_century(
    conn: Connection,
) -> None:
    def after(interval: str, earned: float = 0) -> float:
        row = conn.execute(
            "SELECT average_credit(10, now() - %s::interval, %s)", [interval, earned]
        ).fetchone()
        assert row is not None
        return float(row[0])

    assert after("0") == 10
    assert after("-1 hour") == 10  # a clock that was set back
    assert after("7 days") == pytest.approx(5)
    assert after("14 days", 7 / math.log(2)) == pytest.approx(3.5)
    assert after("100 years") == pytest.approx(0)


def test_a_steady_host_has_as_recent_average_what_it_earns_a_day(conn: Connection) -> None:
    average = 0.0
    for _ in range(24 * 100):
        row = conn.execute(
            "SELECT average_credit(%s, now() - interval '1 hour', 2)", [average]
        ).fetchone()
        assert row is not None
        average = float(row[0])
    assert average == pytest.approx(48, rel=0.01)
