import time

import pytest
from psycopg.types.json import Jsonb
from scripts.benchmarks.hostile import HOSTILE
from tests.db.dispatching import Caller, Dispatch, caller, failure, success
from tests.factories import make_bot, make_client, make_ended, make_host, make_owner

from gridbot_client.protocol.messages import Manifest, ReplicaId, Report
from gridbot_server.cycles import replication
from gridbot_server.cycles.deadline import sweep_cancelled
from gridbot_server.dispatch.bans import Banned
from gridbot_server.matching.spending import Spending
from gridbot_server.storage.db import Connection


def outcome(conn: Connection, bot: int, seq: int = 0) -> tuple[int | None, str | None] | None:
    return conn.execute(
        "SELECT canonical, reason FROM outcome WHERE (bot, seq) = (%s, %s)", [bot, seq]
    ).fetchone()


def how(conn: Connection, replica: ReplicaId) -> tuple[str, bool | None] | None:
    return conn.execute(
        "SELECT how, valid FROM ended WHERE (bot, seq, replica) = (%s, %s, %s)", replica
    ).fetchone()


def state(conn: Connection, bot: int) -> str:
    row = conn.execute("SELECT state FROM bot WHERE id = %s", [bot]).fetchone()
    assert row is not None
    return str(row[0])


def test_a_bot_runs_from_its_first_job_to_its_end(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=20)
    dispatch.feed()
    seen = []
    while given := client.ask().assignments:
        seen += [item.args["i"] for item in given]
        client.ask(want=0, reports=tuple(success(item) for item in given))
    dispatch.settle()
    assert seen == list(range(20))
    assert state(conn, bot) == "done"
    assert all(outcome(conn, bot, seq) == (1, None) for seq in range(20))


def test_a_banned_host_is_told_why_and_those_in_its_batch_are_served(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    host = make_host(conn, alice, banned_at="now", banned_why="forged answers")
    _, token = make_client(conn, alice, host, revoked_at="now")
    with pytest.raises(Banned, match="this machine is banned: forged answers"):
        Caller(dispatch, token).ask()
    make_bot(conn, alice, jobs=1)
    dispatch.feed()
    assert len(client.ask().assignments) == 1


@pytest.mark.parametrize("number", [6.02e23, 1e19, -1e308, 9.3e18, 1e-300, 123456789012345678])
def test_a_number_reaches_its_job_as_it_was_submitted(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller, number: float
) -> None:
    manifest = Manifest("alice", ("echo", "{x}"), {"x": "real"}).text()
    make_bot(conn, alice, manifest=manifest)
    conn.execute("UPDATE job SET args = %s", [Jsonb({"x": number, "y": "1" * 30})])
    dispatch.feed()
    (given,) = client.ask().assignments
    assert given.args == {"x": number, "y": "1" * 30}


def test_concurrency_bounds_what_a_host_holds(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, jobs=20, policy="Concurrency = 3")
    dispatch.feed()
    first = client.ask()
    assert len(first.assignments) == 3
    assert client.ask().assignments == ()
    assert len(client.ask(reports=(success(first.assignments[0]),)).assignments) == 1


def test_the_bot_with_the_highest_rank_goes_first(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    low = make_bot(conn, alice, jobs=3, policy="Rank = 1; Concurrency = 4")
    high = make_bot(conn, alice, jobs=3, policy="Rank = 2; Concurrency = 4")
    dispatch.feed()
    assert [item.id.bot for item in client.ask().assignments] == [high, high, high, low]


def test_a_lost_reply_is_sent_again_and_gives_no_more(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, jobs=20, policy="Concurrency = 3")
    dispatch.feed()
    request = client.request()
    lost = client.send(request)
    again = client.take(client.send(request))
    assert sorted(item.id for item in again.assignments) == sorted(
        item.id for item in lost.assignments
    )
    assert again.manifests == lost.manifests


def test_a_lease_that_the_client_forgot_is_sent_with_its_next_request(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, jobs=1)
    dispatch.feed()
    lost = client.send(client.request())
    assert [item.id for item in client.ask().assignments] == [lost.assignments[0].id]


def test_a_report_sent_twice_counts_once(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=1)
    dispatch.feed()
    item = client.ask().assignments[0]
    for _ in range(3):
        assert client.ask(reports=(success(item),)).acks == (item.id,)
    dispatch.settle()
    row = conn.execute("SELECT done, turnaround_n FROM bot WHERE id = %s", [bot]).fetchone()
    assert row == (1, 1)


def test_a_forged_report_changes_nothing(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=1)
    dispatch.feed()
    item = client.ask().assignments[0]
    stranger = caller(dispatch, make_owner(conn, "mallory"))
    assert stranger.ask(reports=(success(item, "lie"),)).acks == (item.id,)
    dispatch.settle()
    assert outcome(conn, bot) is None


def test_an_expired_job_goes_to_another_host(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=1)
    dispatch.feed()
    item = client.ask().assignments[0]
    dispatch.expire(item.id)
    dispatch.feed()
    other = caller(dispatch, alice)
    copy = other.ask().assignments[0]
    assert (copy.id.seq, copy.id.replica) == (0, 2)
    other.ask(reports=(success(copy),))
    dispatch.settle()
    assert outcome(conn, bot) == (2, None)


def test_a_late_success_wins_while_nobody_else_has(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=1)
    dispatch.feed()
    item = client.ask().assignments[0]
    dispatch.expire(item.id)
    client.ask(reports=(success(item),))
    dispatch.settle()
    assert outcome(conn, bot) == (1, None)
    assert how(conn, item.id) == ("success", True)
    dispatch.feed()
    assert caller(dispatch, alice).ask().assignments == ()


def test_a_late_answer_and_a_request_together_give_no_copy_of_the_same_job(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, jobs=1)
    dispatch.feed()
    item = client.ask().assignments[0]
    dispatch.expire(item.id)
    dispatch.feed()
    assert client.ask().assignments == ()
    assert client.ask(reports=(success(item),)).assignments == ()


def test_a_late_success_after_another_won_changes_nothing(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=1)
    dispatch.feed()
    item = client.ask().assignments[0]
    dispatch.expire(item.id)
    dispatch.feed()
    other = caller(dispatch, alice)
    other.ask(reports=(success(other.ask().assignments[0]),))
    dispatch.settle()
    assert client.ask(reports=(success(item, "something else"),)).acks == (item.id,)
    dispatch.settle()
    assert outcome(conn, bot) == (2, None)
    assert how(conn, item.id) == ("success", False)


def test_a_job_fails_for_good_after_its_last_attempt(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=1, max_attempts=2)
    for _ in range(2):
        dispatch.feed()
        item = client.ask().assignments[0]
        client.ask(want=0, reports=(failure(item),))
        dispatch.settle()
    assert outcome(conn, bot) == (None, "2 attempts failed, the last one: exit_nonzero")
    assert state(conn, bot) == "done"


def test_a_host_that_fails_all_it_gets_ends_no_job_while_another_works(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bot = make_bot(conn, alice, jobs=6, max_attempts=2, policy="Concurrency = 1")
    honest, black_hole = caller(dispatch, alice), caller(dispatch, alice)
    dispatch.feed()
    job = honest.ask().assignments
    failed: tuple[Report, ...] = ()
    for _ in range(20):
        failed = tuple(failure(item) for item in black_hole.ask(reports=failed).assignments)
        dispatch.settle()
        dispatch.feed()
    tries = "SELECT count(*) FROM ended WHERE bot = %s AND how = 'error'"
    assert conn.execute(tries, [bot]).fetchall() == [(5,)]  # each job but the honest one's, once
    while job:
        job = honest.ask(reports=tuple(success(item) for item in job)).assignments
        dispatch.settle()
        dispatch.feed()
    canonical = "SELECT count(canonical), count(*) FROM outcome WHERE bot = %s"
    assert conn.execute(canonical, [bot]).fetchall() == [(6, 6)]


def test_hosts_of_one_stranger_are_no_quorum_of_a_bot_that_is_signed_for_boinc_alone(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bot = make_bot(conn, alice, jobs=1, quorum=2, boinc="{}")
    mallory, trent = make_owner(conn, "mallory"), make_owner(conn, "trent")
    for replica, owner in enumerate([mallory, mallory], 1):
        client, _ = make_client(conn, owner)
        make_ended(conn, ReplicaId(bot, 0, replica), client, digest=b"same")
    conn.execute("INSERT INTO pending VALUES (%s, 0)", [bot])
    dispatch.settle()
    assert outcome(conn, bot) is None
    client, _ = make_client(conn, trent)
    make_ended(conn, ReplicaId(bot, 0, 3), client, digest=b"same")
    conn.execute("INSERT INTO pending VALUES (%s, 0)", [bot])
    dispatch.settle()
    assert outcome(conn, bot) == (1, None)


def test_a_quorum_of_two_outvotes_one_wrong_answer(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bot = make_bot(conn, alice, jobs=1, quorum=2)
    answers = {"right": "42", "wrong": "41", "also right": "42"}
    copies = {}
    for name, text in answers.items():
        dispatch.feed()
        asker = caller(dispatch, alice)
        copies[name] = asker.ask().assignments[0].id
        asker.ask(want=0, reports=(success(copies[name], text),))
        dispatch.settle()
    assert outcome(conn, bot) == (copies["right"].replica, None)
    assert how(conn, copies["wrong"]) == ("success", False)
    assert how(conn, copies["also right"]) == ("success", True)


def test_a_validator_that_only_newer_servers_know_keeps_no_other_bot_from_its_end(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    newer, usual = make_bot(conn, alice, validator="fuzzy"), make_bot(conn, alice)
    dispatch.feed()
    client.ask(0, tuple(success(item) for item in client.ask().assignments))
    dispatch.settle()
    assert (outcome(conn, newer), outcome(conn, usual)) == (None, (1, None))
    conn.execute("UPDATE bot SET validator = 'exact' WHERE id = %s", [newer])
    dispatch.settle()  # as a server that knows it
    assert outcome(conn, newer) == (1, None)


def test_one_host_never_makes_a_quorum(dispatch: Dispatch, conn: Connection, alice: int) -> None:
    make_bot(conn, alice, jobs=1, quorum=2)
    host = make_host(conn, alice)
    dispatch.feed()
    one, two = caller(dispatch, alice, host), caller(dispatch, alice, host)
    item = one.ask().assignments[0]
    one.ask(want=0, reports=(success(item),))
    dispatch.feed()
    assert two.ask().assignments == ()
    assert one.ask().assignments == ()


def test_two_clients_on_one_host_do_not_see_each_others_replicas(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    make_bot(conn, alice, jobs=4, policy="Concurrency = 2")
    host = make_host(conn, alice)
    dispatch.feed()
    one, two = caller(dispatch, alice, host), caller(dispatch, alice, host)
    mine, yours = one.ask().assignments, two.ask().assignments
    assert len({item.id for item in (*mine, *yours)}) == 4
    assert two.ask().assignments == ()


def test_a_bot_that_its_owner_signed_goes_only_to_clients_that_trust_that_owner(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    make_bot(conn, alice, jobs=2, policy="Concurrency = 1")
    dispatch.feed()
    bob = make_owner(conn, "bob")
    stranger = caller(dispatch, bob)
    reply = stranger.ask()
    assert reply.assignments == ()
    assert "the client does not trust its owner's key" in reply.message
    _, token = make_client(conn, bob, trusts=[alice])
    assert len(Caller(dispatch, token).ask().assignments) == 1


def test_a_pilot_serves_only_those_it_was_submitted_for(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bob, operator = make_owner(conn, "bob"), make_owner(conn, "root", operator=True)
    make_bot(conn, alice, jobs=1)
    theirs = make_bot(conn, bob, jobs=1)
    make_bot(conn, operator, jobs=1, signature=b"by the project")
    dispatch.feed()
    _, token = make_client(conn, operator, accepts=[bob], trusts=[bob], grid="ice")
    pilot = Caller(dispatch, token)
    bots = [item.id.bot for item in pilot.ask().assignments]
    assert bots == [theirs]
    assert "the pilot was not submitted on behalf of its owner (2)" in pilot.ask().message


def test_a_job_that_failed_often_waits_for_a_dedicated_host(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, jobs=1, failover_after=1)
    dispatch.feed()
    client.ask(want=0, reports=(failure(client.ask().assignments[0]),))
    dispatch.settle()
    dispatch.feed()
    assert caller(dispatch, alice).ask().assignments == ()
    liar = caller(dispatch, alice)
    liar.host["IsDedicated"] = True
    assert liar.ask().assignments == ()
    _, token = make_client(conn, alice, dedicated=True)
    assert len(Caller(dispatch, token).ask().assignments) == 1


def test_what_each_pilot_did_is_counted(dispatch: Dispatch, conn: Connection, alice: int) -> None:
    make_bot(conn, alice, jobs=3, policy="Concurrency = 3")
    dispatch.feed()
    _, token = make_client(conn, alice, accepts=[alice], grid="ice")
    pilot = Caller(dispatch, token)
    first, second, third = pilot.ask().assignments
    pilot.ask(want=0, reports=(success(first), failure(second, "signal")))
    dispatch.settle()
    dispatch.expire(third.id)
    done = conn.execute("SELECT jobs, failures, failure FROM client").fetchone()
    assert done == (1, 1, "signal")


def test_policies_see_where_a_machine_stands(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    make_bot(conn, alice, jobs=1, policy='JobRequirements = Host.Venue == "work"')
    dispatch.feed()
    client = caller(dispatch, alice)
    client.host["Venue"] = "work"  # not for the client to say
    assert client.ask().assignments == ()
    conn.execute("UPDATE host SET venue = 'work'")
    assert len(client.ask().assignments) == 1


def test_a_cancelled_bot_is_stopped_everywhere(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=20, policy="Concurrency = 2")
    dispatch.feed()
    held = [item.id for item in client.ask().assignments]
    conn.execute("UPDATE bot SET state = 'cancelled' WHERE id = %s", [bot])
    assert sweep_cancelled(conn) == 2
    reply = client.ask()
    assert sorted(reply.abort) == sorted(held)
    assert reply.assignments == ()


def test_a_dead_feeders_claims_are_put_in_again(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=5)
    conn.execute("UPDATE bot SET fed = 5 WHERE id = %s", [bot])
    conn.execute(
        "INSERT INTO feed_range VALUES (%s, 0, 5, 'dead machine', now() - interval '1 s')", [bot]
    )
    dispatch.feed()
    assert [item.id.seq for item in client.ask().assignments] == [0, 1, 2, 3, 4]


def test_the_tail_gets_a_speculative_copy_on_another_host(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    bot = make_bot(
        conn, alice, jobs=1, policy="ReplicationRequirements = Tail && NumberOfReplicas < 2"
    )
    dispatch.feed()
    client.ask()
    dispatch.feed()
    assert replication.run_once(conn, now=time.time()) == 1
    assert replication.run_once(conn, now=time.time()) == 0
    dispatch.feed()
    assert client.ask().assignments == ()
    other = caller(dispatch, alice)
    copy = other.ask().assignments[0]
    assert copy.id == ReplicaId(bot, 0, 2)
    other.ask(reports=(success(copy),))
    dispatch.settle()
    assert outcome(conn, bot) == (2, None)
    assert client.ask().abort == (ReplicaId(bot, 0, 1),)


def test_no_copies_are_made_while_many_jobs_are_unsent(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, jobs=100, policy="ReplicationRequirements = true; Concurrency = 2")
    dispatch.feed()
    client.ask()
    dispatch.feed()
    assert replication.run_once(conn, now=time.time()) == 0


def test_replicas_of_a_job_never_pass_their_cap(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=1, policy="ReplicationRequirements = true", max_replicas=3)
    for asker in (client, *(caller(dispatch, alice) for _ in range(5))):
        dispatch.feed()
        asker.ask()
        replication.run_once(conn, now=time.time())
    row = conn.execute("SELECT count(*) FROM lease WHERE bot = %s", [bot]).fetchone()
    assert row == (3,)


def test_a_host_that_never_fails_is_rated_for_ever(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=20, policy="Concurrency = 20")
    conn.execute("UPDATE host SET error_rate = 1.5e-45")  # next to nothing, after 2,000 successes
    dispatch.feed()
    given = client.ask().assignments
    client.ask(want=0, reports=tuple(success(item) for item in given))
    dispatch.settle()
    assert state(conn, bot) == "done"


def test_a_host_that_was_away_for_years_gets_work(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice)
    conn.execute("UPDATE host SET recent_cpu = 1, recent_at = now() - interval '5 years'")
    dispatch.feed()
    assert len(client.ask().assignments) == 1


# ------------------------------------------------------------------------- evaluation budgets

TOO_LONG = HOSTILE[0](1)


def _suspended(conn: Connection, bot: int) -> bool:
    row = conn.execute("SELECT suspended IS NOT NULL FROM bot WHERE id = %s", [bot]).fetchone()
    assert row is not None
    return bool(row[0])


def test_a_policy_that_exceeds_its_budget_three_times_is_suspended_and_others_go_on(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    hostile = make_bot(conn, alice, policy=TOO_LONG)
    honest = make_bot(conn, alice, jobs=100, policy="Concurrency = 1000")
    dispatch.feed()
    given: list[list[int]] = []
    while not _suspended(conn, hostile) and len(given) < 30:
        given.append([item.id.bot for item in client.ask(want=1).assignments])
    assert 3 <= len(given) < 30
    assert given[-1] == [honest]
    assert all(hostile not in bots for bots in given)
    dispatch.feed()
    client.ask(want=0, reports=tuple(success(item) for item in client.holding))
    conn.execute("UPDATE bot SET state = 'cancelled', ended_at = now() WHERE id = %s", [honest])
    dispatch.feed()
    assert "suspended policy (1)" in client.ask(want=1).message


def test_a_replication_policy_that_exceeds_its_budget_is_suspended_too(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    policy = TOO_LONG.replace("JobRequirements", "ReplicationRequirements")
    bot = make_bot(conn, alice, jobs=4, tail=True, policy=policy)
    dispatch.feed()
    client.ask(want=4)
    spending, passes = Spending(), 0
    while not _suspended(conn, bot) and passes < 30:
        assert replication.run_once(conn, time.time(), spending) == 0
        passes += 1
    assert 3 <= passes < 30
