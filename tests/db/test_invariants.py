from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.db.dispatching import Dispatch, caller, dispatching, failure, success
from tests.factories import make_bot, make_owner

from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.commands.server import server
from gridbot_server.cycles import deadline
from gridbot_server.storage import invariants
from gridbot_server.storage.db import PostgresConnection

# One statement for each invariant that breaks it and, but for those named with it, no other.
# The BOTs, by how far they are: 1 is done, 2 has a failed job, 3 has quorum two and one answer
# to its only job, 4 runs with unsent jobs, a lease and a queued copy, 5 is open, 6 is cancelled.
PROVISIONAL = (
    "INSERT INTO provisional (bot, seq, replica, host, ended_at, is_lone, is_canonical)"
    " SELECT bot, seq, replica, host, ended_at, true, true FROM ended WHERE bot = {}"
)
GROUP = "INSERT INTO bot_group (owner, name) SELECT owner, 'scan' FROM bot WHERE id = 1; "

BREAKS = {
    "a_replica_is_in_one_place": "UPDATE requeue SET replica = 1 WHERE bot = 4",
    "a_replica_belongs_to_a_job_of_a_started_bot": "INSERT INTO pending VALUES (5, 0)",
    "a_bot_has_the_jobs_it_says": "DELETE FROM job WHERE (bot, seq) = (4, 9)",
    "copies_follow_a_first_replica": "UPDATE requeue SET seq = 9 WHERE bot = 4",
    "something_moves_every_unfinished_job": "DELETE FROM requeue WHERE bot = 3",
    "no_job_is_set_aside": "INSERT INTO dead_letter VALUES (4, 0, 'ZeroDivisionError')",
    "only_fed_jobs_were_sent": "UPDATE bot SET fed = 0 WHERE id = 3",
    "feed_ranges_lie_within_what_was_fed": "UPDATE feed_range SET hi = 11 WHERE bot = 4",
    "feed_ranges_do_not_overlap": "INSERT INTO feed_range SELECT bot, lo + 1, hi, machine,"
    " expires_at FROM feed_range WHERE bot = 4",
    "a_finished_job_has_nothing_in_progress": "UPDATE lease SET bot = 1, replica = 2",
    "a_canonical_replica_is_a_valid_success": "UPDATE outcome SET canonical = 2 WHERE bot = 1",
    "a_canonical_replica_has_its_quorum": "UPDATE bot SET quorum = 2 WHERE id = 1",
    "a_valid_replica_has_an_outcome": "UPDATE ended SET valid = true WHERE bot = 3",
    "outcomes_are_numbered_without_gaps": "UPDATE outcome SET n = 3 WHERE bot = 1",
    "outcomes_of_groups_are_numbered_once": GROUP + "UPDATE bot SET bot_group = 1 WHERE id = 1",
    "runs_of_groups_follow_each_other": GROUP + "INSERT INTO group_run VALUES (1, 1, 1, 1, 0)",
    "done_and_failed_count_the_outcomes": "UPDATE bot SET done = 0, failed = 1 WHERE id = 1",
    "bots_count_their_cancelled_jobs": "UPDATE bot SET jobs_cancelled = 1 WHERE id = 2",
    "bots_count_what_they_reuse": "UPDATE bot SET reused = 1 WHERE id = 2",
    "what_is_reused_was_never_sent": "INSERT INTO reused VALUES (1, 0, 2, 0)",
    "a_bot_is_done_when_all_its_jobs_are": "UPDATE bot SET state = 'running' WHERE id = 1",
    "only_a_running_bot_grows": "UPDATE bot SET growing = true, grown_at = now() WHERE id = 5",
    "a_growing_bot_has_no_tail": "UPDATE bot SET growing = true, grown_at = now(), tail = true"
    " WHERE id = 4",
    "parts_cover_the_job_table": "INSERT INTO job_part (bot, first, size, leaves)"
    " VALUES (4, 0, 9, decode(repeat('00', 288), 'hex'))",
    "turnarounds_count_the_valid_replicas": "UPDATE bot SET turnaround_n = 2 WHERE id = 1",
    "hosts_have_the_credit_of_their_valid_replicas": "UPDATE outcome SET credit = 7 WHERE bot = 1",
    "owners_have_the_credit_of_their_hosts": "UPDATE volunteer SET total = 7",
    "counters_tell_the_replicas": "UPDATE bot_stat SET value = value + 1 WHERE bot = 4",
    "a_replica_names_its_client_and_host": "UPDATE lease SET client = 99",
    "a_lease_has_a_time_to_run": "UPDATE lease SET deadline = sent_at - interval '1 s'",
    "what_counts_against_a_width_is_not_judged": "INSERT INTO unjudged"
    " SELECT bot, seq, replica, host, 'owner 1' FROM ended WHERE bot = 1",
    "a_provisional_outcome_is_not_final": PROVISIONAL.format(1),
    "a_provisional_outcome_has_one_answer": "UPDATE bot SET provisional = 1 WHERE id = 3;"
    + PROVISIONAL.format(3)
    + "; UPDATE provisional SET is_canonical = false",
    "bots_count_what_is_provisional": PROVISIONAL.format(3),
    "events_end_with_the_outcome": "INSERT INTO result_event (bot, n, seq, kind)"
    " VALUES (1, 1, 0, 'confirmed'), (1, 2, 0, 'recalled')",
    "who_was_caught_has_no_trust": "INSERT INTO track_record VALUES ('host 1', '', 1, 0, 0, 0)",
    "a_client_holds_one_replica_of_a_job": "INSERT INTO lease SELECT bot, seq, 3, round, why,"
    " client, host, owner, sent_at, deadline, request_key FROM lease",
    "attempts_are_bounded": "INSERT INTO ended"
    " (bot, seq, replica, round, why, how, client, host, owner, sent_at)"
    " SELECT bot, seq, n, round, why, 'error', client, host, owner, sent_at"
    " FROM lease, generate_series(3, 11) AS n",
    "replicas_are_bounded": "INSERT INTO ended"
    " (bot, seq, replica, round, why, how, client, host, owner, sent_at)"
    " SELECT bot, seq, n, round, why, 'expired', client, host, owner, sent_at"
    " FROM lease, generate_series(3, 100) AS n",
    "replicas_in_progress_are_bounded": "INSERT INTO requeue (bot, seq, replica, round, why)"
    " SELECT bot, seq, n, 0, 'tail' FROM lease, generate_series(3, 9) AS n",
    "a_gang_that_runs_is_whole": "INSERT INTO gang (bot, number, size) VALUES (4, 0, 2)",
    "a_leased_member_has_its_gang": "UPDATE bot SET together = 2 WHERE id = 4",
    "a_gang_has_all_outcomes_or_none": "UPDATE bot SET together = 2 WHERE id = 1",
    "an_output_belongs_to_a_sent_replica": "UPDATE output SET replica = 9 WHERE bot = 1",
    "nothing_outlives_its_bot": "INSERT INTO job VALUES (99, 0, '{}')",
    "an_output_has_its_content": "UPDATE output SET content = 'lie' WHERE bot = 1",
    "an_output_belongs_to_its_bots_owner": "INSERT INTO blob VALUES (sha256('x'), '', 1);"
    " UPDATE output SET content = NULL, sha256 = sha256('x'), size = 1 WHERE bot = 1",
    "what_counts_as_published_is_in_the_storage_or_lost": "INSERT INTO owner_storage"
    " (owner, name, tag, place, access_key, secret_key)"
    " SELECT owner, 'lab', 'tag', 's3://x', 'key', '' FROM bot WHERE id = 1;"
    " UPDATE bot SET owner_storage = (SELECT id FROM owner_storage), published = outcomes"
    " WHERE id = 1",
    "a_claimed_copy_has_a_claimant": "UPDATE requeue SET machine = NULL, claimed_until = now()"
    " WHERE bot = 4",
    "unfinished_jobs_are_within_the_quota": "UPDATE owner SET max_jobs = 5",
    "the_last_version_of_a_manifest_runs": "UPDATE bot SET manifest_version = 2 WHERE id = 4",
    "the_history_equals_the_tables": "INSERT INTO happening (what)"
    """ VALUES ('[{"bot": 1, "added": 1, "done": 1}]')""",
    "no_decision_is_due": "INSERT INTO pending VALUES (4, 0)",
    "no_comparison_is_due": "INSERT INTO comparison (bot, seq, one, other) VALUES (4, 0, '1', '2')",
    "every_replica_of_a_finished_job_is_judged": "UPDATE ended SET valid = NULL WHERE bot = 2",
    "a_cancelled_bot_has_nothing_in_progress": "INSERT INTO lease SELECT 6, 0, 2, round, why,"
    " client, host, owner, sent_at, deadline, request_key FROM lease",
    "an_ended_bot_has_no_feed_range": "UPDATE feed_range SET bot = 1, lo = 0, hi = 1",
    "no_lease_outlives_its_deadline": "UPDATE lease SET sent_at = now() - interval '2 min',"
    " deadline = now() - interval '1 min'",
}


@pytest.fixture
def busy(dsn: str, conn: PostgresConnection, tmp_path: Path) -> Iterator[Dispatch]:
    """A database in which something is in every state."""
    with dispatching(dsn, conn, tmp_path / "test.buffer") as made:
        alice = make_owner(conn, "alice")
        client = caller(made, alice)
        policy = "Concurrency = 9"
        make_bot(conn, alice, policy=policy)
        make_bot(conn, alice, policy=policy, max_attempts=1)
        make_bot(conn, alice, policy=policy, quorum=2)
        make_bot(conn, alice, policy=policy, jobs=10)
        make_bot(conn, alice, state="open")
        make_bot(conn, alice, policy="Rank = 1; Concurrency = 9")
        made.feed()
        client.ask(want=6)
        conn.execute("UPDATE bot SET state = 'cancelled', ended_at = now() WHERE id = 6")
        deadline.sweep_cancelled(conn)
        answers = [success(ReplicaId(bot, 0, 1)) for bot in (1, 3)]
        client.ask(want=0, reports=(*answers, failure(ReplicaId(2, 0, 1))))
        made.expire(ReplicaId(4, 1, 1))
        made.feed()
        yield made


def test_they_hold_in_every_phase_of_a_bot(busy: Dispatch, conn: PostgresConnection) -> None:
    assert [str(item) for item in invariants.check(conn, idle=True)] == []
    tables = ("lease", "requeue", "ended", "outcome", "output", "feed_range", "bot_stat")
    for table in tables:
        assert conn.execute(f"SELECT 1 FROM {table}".encode()).fetchone(), table


def test_each_of_them_is_broken_by_some_test() -> None:
    assert BREAKS.keys() == {name for name, _ in invariants.queries(idle=True)}


@pytest.mark.parametrize("name", BREAKS)
def test_it_is_seen_that(name: str, busy: Dispatch, conn: PostgresConnection) -> None:
    conn.execute(BREAKS[name].encode())
    found = {item.name: item for item in invariants.check(conn, idle=True)}
    assert name in found
    assert found[name].count >= len(found[name].examples) > 0


def test_what_holds_only_in_quiet_times_is_not_asked_of_a_busy_server(
    busy: Dispatch, conn: PostgresConnection
) -> None:
    conn.execute("INSERT INTO pending VALUES (4, 0)")
    assert invariants.check(conn, idle=False) == []
    assert [item.name for item in invariants.check(conn, idle=True)] == ["no_decision_is_due"]


def test_the_command_prints_what_is_broken_and_fails(
    busy: Dispatch, conn: PostgresConnection, dsn: str
) -> None:
    assert run(dsn, "--idle").output == f"all {len(BREAKS)} invariants hold\n"
    assert run(dsn).exit_code == 0
    conn.execute("UPDATE bot SET done = 0, failed = 1 WHERE id = 1")
    said = run(dsn, "--idle")
    example = {"id": 1, "done": 0, "failed": 1, "good": 1, "bad": 0}
    assert said.exit_code == 1
    assert said.stdout == (
        f"done_and_failed_count_the_outcomes: 1 broken by\n  {json.dumps(example)}\n"
        f"1 of {len(BREAKS)} invariants violated\n"
    )
    told = json.loads(run(dsn, "--json", "--idle").stdout)
    assert told["violations"] == [
        {"name": "done_and_failed_count_the_outcomes", "count": 1, "examples": [example]}
    ]
    assert told["checked"] == list(BREAKS)


def test_every_column_of_an_example_has_its_own_name(
    busy: Dispatch, conn: PostgresConnection
) -> None:
    for name, query in invariants.queries(idle=True):
        columns = [column.name for column in conn.execute(query).description or ()]
        assert len(columns) == len(set(columns)), name


def test_all_rows_that_break_one_are_counted_and_some_are_shown(
    busy: Dispatch, conn: PostgresConnection
) -> None:
    conn.execute("INSERT INTO job SELECT 99, n, '{}' FROM generate_series(1, 1000) AS n")

    (found,) = invariants.check(conn, idle=True)

    assert (found.name, found.count) == ("nothing_outlives_its_bot", 1000)
    assert list(found.examples) == [{"place": "job", "bot": 99}] * invariants.EXAMPLES


def test_texts_from_hosts_cannot_write_to_the_terminal(
    busy: Dispatch, conn: PostgresConnection
) -> None:
    conn.execute("UPDATE output SET name = E'\\x1b[2J', replica = 9")

    (found,) = invariants.check(conn, idle=True)

    assert "\x1b" not in str(found)
    assert "\\u001b[2J" in str(found)


def test_a_query_that_takes_too_long_ends_the_check_and_is_named(
    dsn: str, conn: PostgresConnection
) -> None:
    with conn.transaction():
        conn.execute("LOCK TABLE lease IN ACCESS EXCLUSIVE MODE")
        ended = run(dsn, "--timeout", "1")

    assert ended.exit_code == 1
    assert "a_replica_is_in_one_place could not be checked:" in ended.output
    assert "statement timeout" in ended.output


def test_the_database_of_something_else_is_told(postgres: str) -> None:
    ended = run(postgres)

    assert ended.exit_code == 1
    assert "a_replica_is_in_one_place could not be checked: relation" in ended.output


def test_a_wrong_option_is_a_usage_error(dsn: str) -> None:
    assert run(dsn, "--timeout", "soon").exit_code == 2


def test_an_address_without_a_database_is_told() -> None:
    ended = run("host=/nonexistent")

    assert ended.exit_code == 1
    assert "/nonexistent" in ended.output


def test_a_directory_without_a_server_is_told(tmp_path: Path) -> None:
    ended = CliRunner().invoke(server, ["check", "--data", str(tmp_path)])

    assert ended.exit_code == 1
    assert f"no server was ever started in {tmp_path}" in ended.output
    assert list(tmp_path.iterdir()) == []


def run(dsn: str, *options: str) -> Result:
    return CliRunner().invoke(server, ["check", "--dsn", dsn, *options])
