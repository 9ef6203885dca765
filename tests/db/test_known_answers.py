"""Jobs whose answers their owner knows: hosts are judged by them, at once, and cannot tell."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import pytest
from tests.db.dispatching import Caller, Dispatch, failure, success
from tests.db.test_assurance import (
    assured,
    credit,
    events,
    hosts_and_crews,
    lie,
    outcomes,
    provisional,
    strangers,
    trust,
    unchecked,
    work,
)
from tests.factories import make_bot

from gridbot_client.protocol.messages import Assignment
from gridbot_server.api import results
from gridbot_server.bots import known_answers
from gridbot_server.bots.known_answers import CheckedOutput
from gridbot_server.cycles import collector, retention
from gridbot_server.matching.track_record import TrackRecord
from gridbot_server.models.responses.results import LogLine
from gridbot_server.storage import invariants, rows
from gridbot_server.storage.db import PostgresConnection

__all__ = ["unchecked"]  # a fixture


@pytest.fixture(autouse=True)
def _sound(conn: PostgresConnection) -> object:
    yield
    assert [str(item) for item in invariants.check(conn, idle=False)] == []


def know(conn: PostgresConnection, bot: int, *jobs: int, text: str = "answer {}") -> None:
    """Let the owner know what jobs print."""
    answers = {}
    for job in jobs:
        content = text.format(job).encode()
        sha256 = hashlib.sha256(content).hexdigest()
        answers[job] = [CheckedOutput("stdout", sha256, len(content), content)]
    known_answers.insert(conn, bot, answers)


def record(conn: PostgresConnection, client: Caller) -> TrackRecord:
    row = conn.execute(
        "SELECT streak, caught FROM track_record WHERE who = %s",
        [hosts_and_crews(conn, client)[0]],
    ).fetchone()
    return TrackRecord(*row) if row else TrackRecord()


def replicas(conn: PostgresConnection, bot: int) -> int:
    row = conn.execute(
        "SELECT (SELECT count(*) FROM ended WHERE bot = %s)"
        " + (SELECT count(*) FROM lease WHERE bot = %s)"
        " + (SELECT count(*) FROM requeue WHERE bot = %s)",
        [bot, bot, bot],
    ).fetchone()
    assert row is not None
    return int(row[0])


def log(conn: PostgresConnection, bot: int, seq: int) -> list[LogLine]:
    values = {
        "bot": bot, "seq": seq, "how": None, "after_seq": -1, "after_replica": -1, "limit": 99,
    }  # fmt: skip
    return rows.read(conn, LogLine, results.SQL["logs"], values)


def held_known(
    dispatch: Dispatch, conn: PostgresConnection, bot: int
) -> tuple[Caller, Caller, Assignment]:
    """Let the first of two strangers hold a job whose answer is known."""
    know(conn, bot, 0)
    bob, carol = strangers(dispatch, 2)
    dispatch.feed()
    (item,) = bob.ask(1).assignments
    return bob, carol, item


def test_a_newcomer_who_is_right_earns_trust_with_a_single_replica(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = assured(conn, alice, 3)
    know(conn, bot, 0, 1, 2)
    (bob,) = strangers(dispatch, 1)
    work(dispatch, bob)
    assert outcomes(conn, bot) == {seq: f"answer {seq}" for seq in range(3)}
    assert events(conn, bot) == ["confirmed"] * 3
    assert replicas(conn, bot) == 3
    assert record(conn, bob) == TrackRecord(3, 0)
    assert credit(conn) > 0


@pytest.mark.usefixtures("unchecked")
def test_who_fails_a_known_answer_is_caught_and_all_that_it_said_is_run_again(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = assured(conn, alice, 8)
    know(conn, bot, 7)
    eve, *honest = strangers(dispatch, 6)
    trust(conn, eve, *honest)
    work(dispatch, eve, say=lie, want=7)
    assert provisional(conn, bot) == 7
    work(dispatch, eve, say=lie, want=1)
    assert record(conn, eve) == TrackRecord(0, 2)
    assert events(conn, bot).count("recalled") == 7
    for one in 4 * honest:
        work(dispatch, one)
    assert outcomes(conn, bot) == {seq: f"answer {seq}" for seq in range(8)}


@pytest.mark.usefixtures("unchecked")
def test_a_known_answer_is_a_check_that_seasons_what_was_said_before(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = assured(conn, alice, 20)
    know(conn, bot, 5, 6, 7)
    (bob,) = strangers(dispatch, 1)
    trust(conn, bob)
    work(dispatch, bob, want=5)
    assert (len(outcomes(conn, bot)), provisional(conn, bot)) == (0, 5)
    work(dispatch, bob, want=3)
    assert (len(outcomes(conn, bot)), provisional(conn, bot)) == (8, 0)


def test_nothing_that_a_host_is_sent_tells_a_known_job_from_another(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    sent = []
    (bob,) = strangers(dispatch, 1)
    for known in (True, False):
        bot = assured(conn, alice, 1, submit_key=f"known {known}")
        if known:
            know(conn, bot, 0)
        dispatch.feed()
        reply = bob.ask(1)
        (item,) = reply.assignments
        sent.append((item.id.seq, item.id.replica, item.args, item.inputs, item.manifest))
        bob.ask(want=0, reports=(success(item, "answer 0"),))
        dispatch.settle()
        conn.execute("UPDATE bot SET state = 'cancelled', ended_at = now() WHERE state = 'running'")
    assert sent[0] == sent[1]


def test_contents_are_judged_by_the_validator_and_logs_tell_the_loser_why(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = assured(conn, alice, 1, validator="numbers:rel=1e-6")
    know(conn, bot, 0, text="E = 1.0 J")
    bob, carol = strangers(dispatch, 2)
    work(dispatch, bob, say=lambda _: "E = 1.1 J")
    assert outcomes(conn, bot) == {}
    (lost,) = log(conn, bot, 0)
    assert lost.valid is False
    assert lost.difference is not None
    assert lost.difference.startswith("stdout, line 1: 1.1, and 1.0 in the known answer")
    work(dispatch, carol, say=lambda _: "E = 1.00000001 J")
    assert outcomes(conn, bot) == {0: "E = 1.00000001 J"}
    assert (record(conn, bob).caught, record(conn, carol).streak) == (1, 1)


def test_logs_name_the_files_that_differ_from_a_known_answer(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = assured(conn, alice, 1)
    know(conn, bot, 0)
    (bob,) = strangers(dispatch, 1)
    work(dispatch, bob, say=lie)
    (lost,) = log(conn, bot, 0)
    assert lost.difference == "not equal to the last bit with the known answer: stdout"


def test_a_known_answer_that_nobody_gives_fails_its_job_and_no_other(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = assured(conn, alice, 2, max_attempts=2)
    know(conn, bot, 0, 1)
    know_wrong = "UPDATE known_answer SET digest = 'x' WHERE seq = 0"
    conn.execute(know_wrong)
    for one in strangers(dispatch, 4):
        work(dispatch, one)
    assert outcomes(conn, bot).get(1) == "answer 1"
    row = conn.execute("SELECT reason FROM outcome WHERE canonical IS NULL").fetchone()
    assert row == ("2 answers, and none is the one that its owner knows",)


def test_an_error_in_a_known_job_is_followed_by_another_attempt(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = assured(conn, alice, 1)
    bob, carol, item = held_known(dispatch, conn, bot)
    bob.ask(want=0, reports=(failure(item),))
    dispatch.settle()
    work(dispatch, carol)
    assert outcomes(conn, bot) == {0: "answer 0"}


def test_without_assurance_known_answers_still_judge(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = make_bot(conn, alice, 1, quorum=2, signature=b"by the project", policy="Concurrency = 9")
    know(conn, bot, 0)
    bob, carol = strangers(dispatch, 2)
    work(dispatch, bob, say=lie)
    work(dispatch, carol)
    assert outcomes(conn, bot) == {0: "answer 0"}
    assert replicas(conn, bot) == 2


def test_a_late_answer_is_judged_by_the_known_one_too(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = assured(conn, alice, 1)
    bob, carol, item = held_known(dispatch, conn, bot)
    dispatch.expire(item.id)
    work(dispatch, carol)
    assert outcomes(conn, bot) == {0: "answer 0"}
    bob.ask(want=0, reports=(success(item, lie(item.id)),))
    dispatch.settle()
    assert record(conn, bob) == TrackRecord(0, 1)


def test_known_answers_go_with_their_bot_and_keep_their_files_until_then(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    content = b"1.0\n" * 10_000
    sha256 = hashlib.sha256(content).hexdigest()
    conn.execute(
        "INSERT INTO blob (sha256, md5, size) VALUES (%s, '', %s)",
        [bytes.fromhex(sha256), len(content)],
    )
    conn.execute(
        "INSERT INTO blob_owner VALUES (%s, %s, now() - interval '9 days')",
        [bytes.fromhex(sha256), alice],
    )
    bot = assured(conn, alice, 1)
    known_answers.insert(conn, bot, {0: [CheckedOutput("stdout", sha256, len(content), None)]})
    assert kept(conn) == 1
    conn.execute("UPDATE bot SET state = 'cancelled', ended_at = now() WHERE id = %s", [bot])
    conn.execute(retention.SQL["delete"], {"bots": [bot]})
    while retention.remove_rows(conn, timedelta(0)):
        pass
    assert conn.execute("SELECT count(*) FROM known_output").fetchone() == (0,)
    assert conn.execute("SELECT count(*) FROM known_answer").fetchone() == (0,)
    assert kept(conn) == 0


def kept(conn: PostgresConnection) -> int:
    """How many files have an owner once the collector has passed."""
    for prefix in range(256):
        collector.forget_owners(conn, prefix)
    row = conn.execute("SELECT count(*) FROM blob_owner").fetchone()
    assert row is not None
    return int(row[0])
