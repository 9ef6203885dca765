"""Jobs whose answers are compared by their contents."""

import itertools
import os
import signal

import psutil
import pytest
from tests.db.dispatching import Dispatch, caller, success
from tests.factories import make_bot

from gridbot_server.api import results
from gridbot_server.cycles import comparing, transitioner
from gridbot_server.models.responses.results import LogLine
from gridbot_server.storage import rows
from gridbot_server.storage.db import PostgresConnection
from gridbot_server.storage.invariants import check

NEAR, ALSO_NEAR, NEARLY, FAR = "E = 1.0", "E = 1.00000001", "E = 1.00001", "E = 7"


def answer(dispatch: Dispatch, owner: int, *texts: str) -> None:
    """Let as many hosts answer, each with what is at hand, before anything is decided."""
    for text in texts:
        dispatch.feed()
        host = caller(dispatch, owner)
        (item,) = host.ask(want=1).assignments
        host.ask(want=0, reports=(success(item, text),))


def verdicts(conn: PostgresConnection, bot: int) -> dict[int, bool | None]:
    found = conn.execute("SELECT replica, valid FROM ended WHERE bot = %s ORDER BY 1", [bot])
    return dict(found.fetchall())


def outcome(conn: PostgresConnection, bot: int) -> tuple[int | None, str | None] | None:
    return conn.execute("SELECT canonical, reason FROM outcome WHERE bot = %s", [bot]).fetchone()


def test_near_answers_are_a_quorum_and_a_forged_one_loses(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = make_bot(conn, alice, quorum=2, validator="numbers:rel=1e-6")
    answer(dispatch, alice, FAR, NEAR)
    dispatch.settle()
    assert outcome(conn, bot) is None
    answer(dispatch, alice, ALSO_NEAR)
    dispatch.settle()
    assert outcome(conn, bot) == (2, None)
    assert verdicts(conn, bot) == {1: False, 2: True, 3: True}
    assert check(conn, idle=True) == []


def test_exact_answers_are_never_compared_by_contents(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = make_bot(conn, alice, quorum=2)
    answer(dispatch, alice, NEAR, ALSO_NEAR)
    transitioner.run_once(conn)
    answer(dispatch, alice, NEAR)
    transitioner.run_once(conn)
    assert outcome(conn, bot) == (1, None)
    assert conn.execute("SELECT count(*) FROM comparison").fetchone() == (0,)


@pytest.mark.parametrize("order", [*itertools.permutations((NEAR, NEARLY, "E = 1.00002"))])
def test_the_canonical_answer_of_a_chain_is_the_one_that_most_agree_with(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, order: tuple[str, ...]
) -> None:
    """The middle one is near both ends, which are not near each other."""
    bot = make_bot(conn, alice, quorum=3, validator="numbers:rel=1.5e-5")
    answer(dispatch, alice, *order)
    dispatch.settle()
    assert outcome(conn, bot) == (1 + order.index(NEARLY), None)
    assert set(verdicts(conn, bot).values()) == {True}


def test_a_late_answer_is_judged_by_its_contents(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = make_bot(conn, alice, validator="numbers")
    hosts = [caller(dispatch, alice) for _ in range(3)]
    items = []
    for host in hosts:
        dispatch.feed()
        (item,) = host.ask(want=1).assignments
        items.append(item)
        dispatch.expire(item.id)
    hosts[0].ask(want=0, reports=(success(items[0], NEAR),))
    dispatch.settle()
    for host, item, text in zip(hosts[1:], items[1:], (ALSO_NEAR, FAR), strict=True):
        host.ask(want=0, reports=(success(item, text),))
    dispatch.settle()
    assert outcome(conn, bot) == (1, None)
    assert verdicts(conn, bot) == {1: True, 2: True, 3: False}
    assert check(conn, idle=True) == []


def test_an_interrupted_comparison_is_made_again_and_a_finished_one_is_not(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = make_bot(conn, alice, quorum=2, validator="numbers")
    answer(dispatch, alice, NEAR, ALSO_NEAR)
    transitioner.run_once(conn)
    with conn.transaction(force_rollback=True):  # as if it were killed before the commit
        assert dispatch.comparing.run_once(conn) == 1
    assert check(conn, idle=False) == [], "the job waits for its comparison"
    assert dispatch.comparing.run_once(conn) == 1
    assert dispatch.comparing.run_once(conn) == 0
    assert check(conn, idle=False) == []
    dispatch.settle()
    assert outcome(conn, bot) == (1, None)


def test_two_crashes_set_a_job_aside_and_the_others_go_on(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    poison = make_bot(conn, alice, quorum=2, validator="numbers")
    answer(dispatch, alice, NEAR, ALSO_NEAR)
    conn.execute(
        "UPDATE output SET content = NULL WHERE bot = %s", [poison]
    )  # and no file is there
    good = make_bot(conn, alice, quorum=2, validator="numbers")
    answer(dispatch, alice, NEAR, ALSO_NEAR)
    dispatch.settle()
    assert outcome(conn, good) == (1, None)
    found = outcome(conn, poison)
    assert found is not None
    assert found[0] is None
    assert "set aside for review: comparing two answers failed: " in (found[1] or "")
    assert "No such file" in (found[1] or "")
    row = conn.execute("SELECT crashes FROM comparison WHERE bot = %s", [poison]).fetchone()
    assert row == (comparing.CRASHES,)


def test_a_killed_worker_costs_one_attempt(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    first = make_bot(conn, alice, quorum=2, validator="numbers")
    answer(dispatch, alice, NEAR, ALSO_NEAR)
    dispatch.settle()
    (worker,) = [
        child for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE
        and "gridbot_server.validators.worker" in child.cmdline()
    ]  # fmt: skip
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    second = make_bot(conn, alice, quorum=2, validator="numbers")
    answer(dispatch, alice, NEAR, ALSO_NEAR)
    dispatch.settle()
    assert outcome(conn, first) == outcome(conn, second) == (1, None)
    row = conn.execute("SELECT crashes FROM comparison WHERE bot = %s", [second]).fetchone()
    assert row in ((0,), (1,)), "another process of the pool may have been asked"


def test_the_log_tells_a_loser_why(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    near = make_bot(conn, alice, quorum=2, validator="numbers:rel=1e-6")
    answer(dispatch, alice, FAR, NEAR)
    dispatch.settle()
    answer(dispatch, alice, ALSO_NEAR)
    dispatch.settle()
    exact = make_bot(conn, alice, quorum=2)
    answer(dispatch, alice, NEAR, FAR)
    dispatch.settle()
    answer(dispatch, alice, NEAR)
    dispatch.settle()
    assert told(conn, near) == {
        1: "stdout, line 1: 7, and 1.0 in the canonical replica 2 (not near: rel=1e-06, abs=0)"
    }
    assert told(conn, exact) == {
        2: "not equal to the last bit with the canonical replica 1: stdout"
    }


def told(conn: PostgresConnection, bot: int) -> dict[int, str]:
    """Why answers lost, by replica."""
    values = {"bot": bot, "seq": None, "how": None, "after_seq": -1, "after_replica": -1}
    lines = rows.read(conn, LogLine, results.SQL["logs"], {**values, "limit": 10})
    return {line.replica: line.difference for line in lines if line.difference}
