"""Claims about versions of a manifest: who runs which one, and that no job has two outcomes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.db.dispatching import Caller, Dispatch, caller, failure, success
from tests.factories import make_bot, make_owner

from gridbot_client.protocol.messages import Assignment, FileRef, JobRange, Manifest, manifest_id
from gridbot_client.protocol.signatures import manifest_statement
from gridbot_server.bots.retry import NewVersion, RetryReceipt, retry
from gridbot_server.errors import Conflict, MissingFiles, RequestError
from gridbot_server.storage import invariants
from gridbot_server.storage.db import PostgresConnection

POLICY = "ReplicationRequirements = false; Concurrency = 999;"


@dataclass
class Scan:
    """A BOT of alice's, and the key that signs it."""

    conn: PostgresConnection
    key: Ed25519PrivateKey
    bot: int
    manifest: Manifest

    def version(self, **changes: object) -> NewVersion:
        manifest = replace(self.manifest, **changes)  # type: ignore[arg-type]
        text = manifest.text()
        return NewVersion(text, self.key.sign(manifest_statement(text)), [])

    def retry(self, jobs: list[int] | None = None, **changes: object) -> RetryReceipt:
        """Retry with a version that differs so, which is the present one from then on."""
        new = self.version(**changes)
        receipt = retry(self.conn, self.bot, jobs, new)
        self.manifest = Manifest.from_text(new.text)
        return receipt

    def outcomes(self) -> dict[int, int]:
        """The version of each job's outcome."""
        return dict(
            self.conn.execute(
                "SELECT o.seq, version_of(o.bot, coalesce(e.round, o.round)) FROM outcome o"
                " LEFT JOIN ended e"
                " ON (e.bot, e.seq, e.replica) = (o.bot, o.seq, o.canonical)"
            ).fetchall()
        )


def make_scan(conn: PostgresConnection, owner: int, jobs: int, **columns: object) -> Scan:
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    conn.execute("INSERT INTO signing_key (owner, key) VALUES (%s, %s)", [owner, public])
    manifest = Manifest(
        "alice",
        ("echo", "{i}"),
        {"i": "int"},
        range=JobRange(0, 1, jobs),
        owner_key=public.hex(),
        bot="0" * 32,
    )
    values = {"policy": POLICY, "max_attempts": 1, **columns}
    bot = make_bot(conn, owner, jobs, manifest=manifest.text(), **values)
    return Scan(conn, key, bot, manifest)


def take(dispatch: Dispatch, client: Caller, want: int) -> list[Assignment]:
    """Let a client ask; each assignment comes with its manifest, or names one that came before."""
    dispatch.feed()
    reply = client.ask(want)
    assert {item.manifest for item in reply.assignments} <= reply.manifests.keys()
    return list(reply.assignments)


def finish(dispatch: Dispatch, *clients: Caller) -> None:
    """Let clients compute all that is left."""
    dispatch.settle()
    while given := [(each, item) for each in clients for item in take(dispatch, each, 100)]:
        for client, item in given:
            client.ask(0, (success(item),))
        dispatch.settle()
    assert invariants.check(dispatch.conn, idle=True) == []


def test_failed_and_unsent_jobs_run_the_new_version_and_old_results_stay(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    scan = make_scan(conn, alice, 10)
    first, second, *_ = given = take(dispatch, client, 4)
    client.ask(0, (success(first), failure(second)))
    dispatch.settle()
    assert scan.retry(resources=replace(scan.manifest.resources, memory_mb=64)) == RetryReceipt(
        1, 2
    )
    # What runs of the first version ends with it.
    client.ask(0, tuple(map(success, given[2:])))
    dispatch.settle()
    later = take(dispatch, client, 100)
    assert {item.manifest for item in later} == {manifest_id(scan.manifest.text())}
    client.ask(0, tuple(map(success, later)))
    finish(dispatch, client)
    assert scan.outcomes() == {0: 1, 2: 1, 3: 1} | dict.fromkeys([1, *range(4, 10)], 2)
    assert conn.execute("SELECT state, done, failed FROM bot").fetchall() == [("done", 10, 0)]


def test_what_lies_in_the_buffer_is_not_sent_by_who_knows_of_a_newer_version(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    scan = make_scan(conn, alice, 10)
    dispatch.feed()
    scan.retry(max_output_bytes=7)
    assert client.ask(100).assignments == ()
    given = take(dispatch, client, 100)
    assert {item.manifest for item in given} <= {manifest_id(scan.manifest.text())}
    client.ask(0, tuple(map(success, given)))
    finish(dispatch, client)
    assert scan.outcomes() == dict.fromkeys(range(10), 2)


def test_who_does_not_know_of_the_newer_version_yet_sends_the_old_one_whole(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    scan = make_scan(conn, alice, 10)
    (first,) = take(dispatch, client, 1)
    scan.retry(max_output_bytes=7)
    reply = client.ask(3)
    assert {item.manifest for item in reply.assignments} == {first.manifest}
    assert reply.manifests.keys() == {first.manifest}
    client.ask(0, tuple(map(success, (first, *reply.assignments))))
    finish(dispatch, client)
    assert scan.outcomes() == dict.fromkeys(range(4), 1) | dict.fromkeys(range(4, 10), 2)


def test_a_job_that_fails_in_an_old_version_is_tried_anew_in_the_next(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    scan = make_scan(conn, alice, 1, max_attempts=1)
    (given,) = take(dispatch, client, 1)
    scan.retry(max_output_bytes=7)
    client.ask(0, (failure(given),))
    dispatch.settle()
    assert scan.outcomes() == {}
    (again,) = take(dispatch, client, 1)
    assert again.manifest == manifest_id(scan.manifest.text())
    client.ask(0, (success(again),))
    finish(dispatch, client)
    assert scan.outcomes() == {0: 2}


def test_a_late_answer_of_the_old_version_does_not_count_for_a_retried_job(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    other = caller(dispatch, alice)
    scan = make_scan(conn, alice, 1)
    (late,) = take(dispatch, client, 1)
    dispatch.expire(late.id)
    (failed,) = take(dispatch, other, 1)
    other.ask(0, (failure(failed),))
    dispatch.settle()
    assert scan.outcomes() == {0: 1}
    assert scan.retry(max_output_bytes=7).retried == 1
    assert client.ask(0).abort == (late.id,)
    client.ask(0, (success(late),))
    dispatch.settle()
    assert scan.outcomes() == {}
    finish(dispatch, client, other)
    assert scan.outcomes() == {0: 2}


def test_a_late_answer_of_the_old_version_counts_for_a_job_that_was_not_retried(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    scan = make_scan(conn, alice, 1)
    (late,) = take(dispatch, client, 1)
    dispatch.expire(late.id)
    scan.retry(max_output_bytes=7)
    client.ask(0, (success(late),))
    dispatch.settle()
    assert scan.outcomes() == {0: 1}
    finish(dispatch, client)


def test_answers_of_two_versions_are_never_compared(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    other = caller(dispatch, alice)
    scan = make_scan(conn, alice, 2, quorum=2)
    given = take(dispatch, client, 2)
    client.ask(0, (success(given[0], "old"),))
    dispatch.settle()
    scan.retry(max_output_bytes=7)
    assert client.ask(0).abort == (given[1].id,)
    client.ask(0, (success(given[1], "old"),))
    dispatch.settle()
    finish(dispatch, client, other)
    assert scan.outcomes() == {0: 2, 1: 2}
    wrong = "SELECT count(*) FROM ended WHERE how = 'success' AND NOT valid"
    assert conn.execute(wrong).fetchone() == (0,)
    assert conn.execute("SELECT count(*) FROM unjudged").fetchone() == (0,)


def test_what_was_provisional_is_recalled_and_begins_anew(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    scan = make_scan(
        conn, alice, 2, quorum=2, assurance=0.999, signature=bytes(64), signed_with=bytes(32)
    )
    strangers = [caller(dispatch, make_owner(conn, f"stranger{n}")) for n in range(2)]
    for stranger in strangers:
        stranger.ask(0, tuple(map(success, take(dispatch, stranger, 2))))
        dispatch.settle()
    assert conn.execute("SELECT provisional, done FROM bot").fetchall() == [(2, 0)]
    scan.retry(max_output_bytes=7)
    assert conn.execute("SELECT provisional FROM bot").fetchall() == [(0,)]
    kinds = conn.execute("SELECT seq, kind FROM result_event ORDER BY n").fetchall()
    assert kinds[-2:] == [(0, "recalled"), (1, "recalled")]
    own = [caller(dispatch, alice) for _ in range(2)]
    finish(dispatch, *own)
    assert scan.outcomes() == {0: 2, 1: 2}


def test_a_lost_reply_with_an_old_version_is_not_sent_again(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    scan = make_scan(conn, alice, 1)
    dispatch.feed()
    client.send(client.request(1))  # the reply is lost
    scan.retry(max_output_bytes=7)
    assert client.ask(0).assignments == ()
    dispatch.settle()
    finish(dispatch, client)
    assert scan.outcomes() == {0: 2}


def test_only_the_failed_jobs_that_are_named_run_again(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    scan = make_scan(conn, alice, 4)
    good, *bad = take(dispatch, client, 4)
    client.ask(0, (success(good), *map(failure, bad)))
    dispatch.settle()
    for job, why in ((0, "job 0 of BOT {} is done"), (9, "job 9 of BOT {} has not failed")):
        with pytest.raises(Conflict, match=why.format(scan.bot)):
            retry(conn, scan.bot, [job])
    assert retry(conn, scan.bot, [2]) == RetryReceipt(1, 1)
    finish(dispatch, client)
    assert conn.execute("SELECT state, done, failed FROM bot").fetchall() == [("done", 2, 2)]
    assert scan.retry([1], max_output_bytes=7) == RetryReceipt(1, 2)
    finish(dispatch, client)
    assert scan.outcomes() == {0: 1, 1: 2, 2: 1, 3: 1}


def test_to_repeat_a_retry_with_a_version_changes_nothing(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    scan = make_scan(conn, alice, 2)
    client.ask(0, tuple(map(failure, take(dispatch, client, 2))))
    dispatch.settle()
    new = scan.version(max_output_bytes=7)
    assert retry(conn, scan.bot, None, new) == RetryReceipt(2, 2)
    before = conn.execute("SELECT * FROM bot").fetchall()
    assert retry(conn, scan.bot, None, new) == RetryReceipt(2, 2)
    assert conn.execute("SELECT * FROM bot").fetchall() == before
    finish(dispatch, client)
    with pytest.raises(Conflict, match="no job is left to run"):
        scan.retry(max_output_bytes=8)


def test_a_version_is_one_of_its_bot_and_signed_by_its_key(
    conn: PostgresConnection, alice: int
) -> None:
    scan = make_scan(conn, alice, 1)
    with pytest.raises(RequestError, match="may differ in inputs"):
        scan.retry(command=("rm", "{i}"))
    with pytest.raises(RequestError, match="may differ in inputs"):
        scan.retry(bot="1" * 32)
    good = scan.version(max_output_bytes=7)
    with pytest.raises(RequestError, match="not the owner key's"):
        retry(conn, scan.bot, None, replace(good, signature=bytes(64)))
    with pytest.raises(RequestError, match="0 parts of jobs"):
        retry(conn, scan.bot, None, replace(good, parts=[bytes(64)]))
    missing = FileRef("data", hashlib.sha256(b"x").hexdigest(), 1)
    with pytest.raises(MissingFiles):
        scan.retry(inputs=(missing,))
    conn.execute("UPDATE signing_key SET revoked_at = now()")
    with pytest.raises(Conflict, match="good key of its owner"):
        retry(conn, scan.bot, None, good)
    assert conn.execute("SELECT manifest_version, round FROM bot").fetchall() == [(1, 0)]


def test_the_projects_signature_and_that_for_stock_clients_do_not_pass_to_a_new_version(
    conn: PostgresConnection, alice: int
) -> None:
    scan = make_scan(conn, alice, 1, signature=bytes(64), signed_with=bytes(32), boinc="signed")
    scan.retry(max_output_bytes=7)
    assert conn.execute("SELECT signature, boinc FROM bot").fetchall() == [(None, None)]
    row = conn.execute("SELECT boinc_unsuitable FROM bot").fetchone()
    assert row is not None and "stock clients keep the first version" in row[0]


def test_a_retry_lets_a_held_bot_go_on_and_watches_it_anew(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    scan = make_scan(conn, alice, 40, max_attempts=3)
    client.ask(0, tuple(map(failure, take(dispatch, client, 12))))
    dispatch.settle()
    assert conn.execute("SELECT held IS NOT NULL FROM bot").fetchone() == (True,)
    scan.retry(max_output_bytes=7)
    assert conn.execute("SELECT held, watched FROM bot").fetchone() == (None, True)
    client.ask(0, tuple(map(failure, take(dispatch, client, 12))))
    dispatch.settle()
    assert conn.execute("SELECT held IS NOT NULL FROM bot").fetchone() == (True,)
    scan.retry(max_output_bytes=8)
    finish(dispatch, client)
    assert conn.execute("SELECT state, done FROM bot").fetchall() == [("done", 40)]
