"""Gangs in the database: how they gather, give way, begin anew, and cost others nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.db.dispatching import Caller, Dispatch, caller, dispatching, failure, success
from tests.factories import make_bot, make_client, make_owner

from gridbot_client.protocol.manifest import JOINING, LATEST
from gridbot_client.protocol.messages import WHY, Manifest, ReplicaId, Resources, WorkReply
from gridbot_server.bots.cancelling import cancel_jobs
from gridbot_server.bots.retry import retry
from gridbot_server.buffer.layout import Item
from gridbot_server.cycles import gangs
from gridbot_server.dispatch.dispatcher import Dispatcher
from gridbot_server.dispatch.gangs import LOCK, SQL, Gathering
from gridbot_server.dispatch.replies import ReplyParts
from gridbot_server.dispatch.transaction import transact
from gridbot_server.dispatch.view import Views
from gridbot_server.errors import Conflict
from gridbot_server.feeder.running import SQL as FEEDING
from gridbot_server.signing import keys
from gridbot_server.storage import db, invariants
from gridbot_server.storage.db import PostgresConnection

NAME = "alice"
_LITTLE = Resources()


def make_gangs(
    conn: PostgresConnection,
    owner: int,
    together: int,
    jobs: int = 0,
    resources: Resources = _LITTLE,
    **columns: Any,
) -> int:
    """Add a BOT of gangs: one, unless it has more jobs."""
    manifest = Manifest(
        NAME, ("echo", "{i}"), {"i": "int"}, resources=resources, together=together
    ).text()
    return make_bot(conn, owner, jobs or together, manifest=manifest, together=together, **columns)


def machine(dispatch: Dispatch, owner: int, cpus: int) -> Caller:
    made = caller(dispatch, owner)
    made.host |= {"NumCpus": cpus, "Memory": 1024 * cpus, "ManifestVersion": LATEST}
    return made


def given(reply: WorkReply) -> list[tuple[int, int]]:
    return [(item.id.bot, item.id.seq) for item in reply.assignments]


def let_pass(conn: PostgresConnection, table: str, column: str) -> None:
    """Let a time be over."""
    conn.execute(f"UPDATE {table} SET {column} = now() - interval '1 s'".encode())


def check(conn: PostgresConnection, *, idle: bool = False) -> None:
    assert invariants.check(conn, idle=idle) == []


def test_a_gang_takes_no_more_of_a_host_than_it_has_cores(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = make_gangs(conn, alice, 5)
    dispatch.feed()
    assert given(machine(dispatch, alice, 2).ask()) == [(bot, 0), (bot, 1)]
    assert given(machine(dispatch, alice, 8).ask()) == [(bot, 2), (bot, 3), (bot, 4)]
    assert conn.execute("SELECT size, is_whole FROM gang").fetchall() == [(5, True)]
    check(conn)


def test_a_gang_that_gathers_comes_before_all_else_the_oldest_first(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    for_big = {"policy": "JobRequirements = Host.NumCpus == 2;"}
    plain = make_bot(conn, alice, 10, policy="Rank = 9;")
    dispatch.feed()
    older = make_gangs(conn, alice, 3, policy=for_big["policy"])
    younger = make_gangs(conn, alice, 2)
    dispatch.feed()
    conn.execute("UPDATE bot SET held = 'by a test', policy_version = 2 WHERE id = %s", [plain])
    dispatch.feed()
    assert given(machine(dispatch, alice, 2).ask()) == [(older, 0), (older, 1)]
    assert given(machine(dispatch, alice, 1).ask()) == [(younger, 0)]
    conn.execute("UPDATE bot SET held = NULL, policy_version = 3 WHERE id = %s", [plain])
    dispatch.feed()
    assert given(machine(dispatch, alice, 2).ask(2)) == [(older, 2), (younger, 1)]
    assert {bot for bot, _ in given(machine(dispatch, alice, 2).ask(2))} == {plain}


def test_a_gang_that_gathers_in_vain_gives_way_and_gathers_longer_next_time(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = make_gangs(conn, alice, 3, gather_seconds=100)
    dispatch.feed()
    one = machine(dispatch, alice, 2)
    held = given(one.ask())
    assert len(held) == 2
    conn.execute("UPDATE gang SET since = since - interval '100 s'")
    let_pass(conn, "gang", "gather_until")
    assert gangs.run_once(conn) == 1
    dispatch.settle()
    check(conn)
    other = make_bot(conn, alice, 2)
    dispatch.feed()
    reply = one.ask()
    assert set(reply.abort) == {ReplicaId(bot, seq, 1) for _, seq in held}
    assert {found for found, _ in given(reply)} == {other}
    let_pass(conn, "gang_rest", "rests_until")
    dispatch.feed()
    assert given(machine(dispatch, alice, 2).ask())[:1] == [(bot, 0)]
    [(seconds,)] = conn.execute(
        "SELECT round(extract(epoch FROM gather_until - since)) FROM gang"
    ).fetchall()
    assert seconds == 200
    check(conn)


def test_a_gang_that_fails_before_all_were_sent_fails_whole_and_is_retried_whole(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = make_gangs(conn, alice, 3, max_attempts=1, max_failures="100%")
    dispatch.feed()
    one = machine(dispatch, alice, 2)
    first, _ = one.ask().assignments
    one.ask(0, (failure(first),))
    dispatch.settle()
    outcomes = conn.execute("SELECT seq, reason FROM outcome ORDER BY seq").fetchall()
    reason = "1 attempt failed: exit_nonzero"
    told = f"job 0 of its gang: {reason}"
    assert outcomes == [(0, reason), (1, told), (2, told)]
    dispatch.feed()
    check(conn, idle=True)
    with pytest.raises(Conflict, match="retry all of 0 to 2"):
        retry(conn, bot, [0])
    assert retry(conn, bot).retried == 3
    dispatch.feed()
    assert len(given(machine(dispatch, alice, 4).ask())) == 3
    check(conn)


def test_only_whole_gangs_are_cancelled(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = make_gangs(conn, alice, 2, 6)
    dispatch.feed()
    machine(dispatch, alice, 1).ask()
    with pytest.raises(Conflict, match="cancel all of 2 to 3"):
        cancel_jobs(conn, bot, [2])
    assert cancel_jobs(conn, bot, range(6), only_unsent=True) == [2, 3, 4, 5]
    assert cancel_jobs(conn, bot, [0, 1]) == [0, 1]
    dispatch.settle()
    assert conn.execute("SELECT FROM gang").fetchall() == []
    dispatch.feed()
    check(conn, idle=True)


def test_gangs_run_on_machines_whose_owners_trust_the_bots(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bob = make_owner(conn, "bob")
    make_gangs(conn, alice, 2, signature=bytes(64), signed_with=bytes(32))
    dispatch.feed()
    stranger = machine(dispatch, bob, 2)
    assert not stranger.ask().assignments
    _, token = make_client(conn, bob, trusts=[bob, alice])
    friend = Caller(dispatch, token, stranger.host)
    assert len(friend.ask().assignments) == 2


def test_a_client_that_knows_no_gangs_gets_none(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    make_gangs(conn, alice, 2)
    dispatch.feed()
    old = machine(dispatch, alice, 2)
    old.host["ManifestVersion"] = JOINING - 1
    assert not old.ask().assignments


def test_other_bots_ask_nothing_of_gangs(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, dsn: str
) -> None:
    bot = make_bot(conn, alice, 2)
    dispatch.feed()
    with db.connect(dsn, "test") as other:
        other.execute("LOCK TABLE gang, arrival, gang_rest IN ACCESS EXCLUSIVE MODE")
        one = machine(dispatch, alice, 1)
        [item] = one.ask(1).assignments
        assert item.id.bot == bot
        assert one.ask(0, (failure(item),)).acks == (item.id,)


def test_no_gang_begins_where_one_gathers_whose_jobs_are_not_at_hand(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    small = "JobRequirements = Host.NumCpus <= 2; Rank = 9;"
    older, younger = make_gangs(conn, alice, 3, policy=small), make_gangs(conn, alice, 2, 4)
    dispatch.feed()
    assert given(machine(dispatch, alice, 1).ask()) == [(older, 0)]
    away = dispatch.buffer.take_fresh(older, 2, generation=63)
    assert given(machine(dispatch, alice, 1).ask()) == []
    assert given(machine(dispatch, alice, 3).ask()) == [(younger, 0), (younger, 1)]
    dispatch.buffer.restore([slot.number for slot in away])
    assert given(machine(dispatch, alice, 2).ask()) == [(older, 1), (older, 2)]
    assert given(machine(dispatch, alice, 1).ask()) == [(younger, 2)]
    check(conn)


def test_one_process_begins_gangs_at_a_time_and_others_may_join(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, dsn: str
) -> None:
    bot = make_gangs(conn, alice, 2, 4)
    plain = make_bot(conn, alice, 1, policy="Rank = -9;")
    dispatch.feed()
    with db.connect(dsn, "test") as other:
        other.execute(SQL["try_to_begin"], {"lock": LOCK})
        assert given(machine(dispatch, alice, 1).ask()) == [(plain, 0)]
        other.rollback()
        assert given(machine(dispatch, alice, 1).ask()) == [(bot, 0)]
        other.execute(SQL["try_to_begin"], {"lock": LOCK})
        assert given(machine(dispatch, alice, 1).ask()) == [(bot, 1)]
        assert given(machine(dispatch, alice, 1).ask()) == []
    assert given(machine(dispatch, alice, 1).ask()) == [(bot, 2)]
    check(conn)


def test_no_gang_begins_in_a_batch_that_did_not_know_of_one_that_gathers(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    one, _ = make_gangs(conn, alice, 2), make_gangs(conn, alice, 2)
    dispatch.feed()

    def look() -> Gathering:
        seen = Views().look(conn, dispatch.buffer, dispatch.buffer.segments(), 0, 0.0)
        return Gathering.of(conn, dispatch.buffer, seen)

    gathering = look()
    begun = "INSERT INTO gang (bot, number, size, gather_until) VALUES (%s, 0, 2, now())"
    conn.execute(begun, [one])
    assert not gathering.may_begin()
    assert look().may_begin()


def test_a_gang_finds_its_jobs_behind_those_of_others(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = make_gangs(conn, alice, 3, 6)
    plain = make_bot(conn, alice, 2, policy="Rank = -9;")
    dispatch.feed()
    assert given(machine(dispatch, alice, 1).ask()) == [(bot, 0)]
    dispatch.buffer.free([slot.number for slot in dispatch.buffer.take_fresh(bot, 2, 63)])
    assert given(machine(dispatch, alice, 4).ask(2)) == [(plain, 0), (plain, 1)]
    dispatch.feed()
    assert given(machine(dispatch, alice, 4).ask(2)) == [(bot, 1), (bot, 2)]
    assert given(machine(dispatch, alice, 4).ask(2)) == [(bot, 3), (bot, 4)]
    check(conn)


def test_a_gang_gathers_on_several_machines_whichever_claimed_its_jobs(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, dsn: str, tmp_path: Path
) -> None:
    bot = make_gangs(conn, alice, 3, 6)
    (tmp_path / "another").mkdir()
    with dispatching(dsn, conn, tmp_path / "another" / "buffer") as another:
        dispatch.feed()
        another.feed()
        assert given(machine(another, alice, 1).ask()) == []
        first = machine(dispatch, alice, 1)
        assert given(first.ask()) == [(bot, 0)]
        another.feed()
        assert given(machine(another, alice, 4).ask()) == [(bot, 1), (bot, 2)]
        first.ask(0, (failure(ReplicaId(bot, 0, 1)),))
        dispatch.settle()
        dispatch.feed()
        assert given(machine(dispatch, alice, 1).ask()) == [(bot, 0)]
        another.feed()
        assert given(machine(another, alice, 1).ask()) == [(bot, 1)]
        dispatch.feed()
        assert given(machine(dispatch, alice, 4).ask()) == [(bot, 2)]
    check(conn)


def test_what_a_gang_lacks_is_claimed_before_it_leaves_and_is_not_given_back(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, dsn: str, tmp_path: Path
) -> None:
    """The first machine claims two jobs of four, and a gang begins with them.

    Another machine's hosts get the others, also when the first has given back what it can.
    """
    bot = make_gangs(conn, alice, 4, 4000)
    dispatch.feed()
    conn.execute("UPDATE bot SET fed = 2")
    conn.execute("UPDATE feed_range SET hi = 2")
    assert given(machine(dispatch, alice, 2).ask()) == [(bot, 0), (bot, 1)]
    (tmp_path / "another").mkdir()
    with dispatching(dsn, conn, tmp_path / "another" / "buffer", slots=2) as another:
        conn.execute("UPDATE bot SET held = 'by a test', policy_version = 2")
        another.feed()
        conn.execute("UPDATE bot SET held = NULL, policy_version = 3")
        another.feed()
        [(fed, gathered)] = conn.execute("SELECT fed, gathered FROM bot").fetchall()
        assert gathered == 4 <= fed
        give_back = FEEDING["give_back_jobs"]
        given_back = json.dumps([{"bot": bot, "fed": fed, "upto": 0}])
        conn.execute("DELETE FROM feed_range")
        conn.execute(give_back, {"given": given_back, "machine": another.buffer.machine})
        assert conn.execute("SELECT fed FROM bot").fetchall() == [(4,)]
        assert given(machine(another, alice, 2).ask()) == [(bot, 2), (bot, 3)]
        check(conn)


def test_partners_come_first_when_very_many_gangs_break_at_once(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = make_gangs(conn, alice, 2, 280)
    dispatch.feed()
    big = machine(dispatch, alice, 280)
    while len(big.holding) < 280:
        big.ask()
        dispatch.feed()
    reasons = ("exit_nonzero", "missing_output")  # one alone would hold the BOT
    broken = [name for name in big.holding if name.seq % 2]
    big.ask(0, tuple(failure(name, reasons[name.seq // 2 % 2]) for name in broken))
    dispatch.settle()
    for _ in range(5):
        dispatch.feed()
        [one] = given(machine(dispatch, alice, 1).ask())
        dispatch.feed()
        [other] = given(machine(dispatch, alice, 1).ask())
        assert one[1] // 2 == other[1] // 2
    assert conn.execute("SELECT count(*) FROM gang WHERE is_whole").fetchall() == [(5,)]
    assert {found for found, _ in (one, other)} == {bot}
    check(conn)


def test_a_gang_bounds_no_other_bot_by_its_cores(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    gang = make_gangs(conn, alice, 2, resources=Resources(cpus=4), policy="Rank = 9;")
    plain = make_bot(conn, alice, 9)
    dispatch.feed()
    found = given(machine(dispatch, alice, 8).ask(8))
    assert found == [(gang, 0), (gang, 1), *((plain, seq) for seq in range(6))]


def test_a_late_answer_keeps_no_host_from_the_gang_that_begins_anew(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = make_gangs(conn, alice, 2)
    dispatch.feed()
    one, two = machine(dispatch, alice, 1), machine(dispatch, alice, 1)
    [late], _ = one.ask().assignments, two.ask()
    dispatch.expire(late.id)
    one.ask(0, (success(late),))
    assert conn.execute("SELECT how FROM ended WHERE seq = 0").fetchall() == [("success",)]
    dispatch.settle()
    dispatch.feed()
    assert two.ask(0).abort == (ReplicaId(bot, 1, 1),)
    assert given(one.ask(1)) == [(bot, 0)]
    assert given(two.ask(1)) == [(bot, 1)]
    check(conn)


@pytest.mark.parametrize(("gather", "vain", "seconds"), [(60, 0, 600), (5, 1, 1200), (90, 2, 3600)])
def test_a_whole_gang_may_prepare_ten_times_as_long_as_it_may_gather(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, gather: int, vain: int, seconds: int
) -> None:
    bot = make_gangs(conn, alice, 2, gather_seconds=gather)
    if vain:
        conn.execute("INSERT INTO gang_rest VALUES (%s, %s, now())", [bot, vain])
    dispatch.feed()
    assert len(given(machine(dispatch, alice, 2).ask())) == 2
    left = "SELECT round(extract(epoch FROM gather_until - since)) FROM gang"
    assert conn.execute(left).fetchall() == [(seconds,)]


def test_a_gang_that_fails_while_its_bot_is_held_stays_failed(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = make_gangs(conn, alice, 3, 6, max_attempts=1, max_failures="100%")
    dispatch.feed()
    one = machine(dispatch, alice, 1)
    [first] = one.ask().assignments
    conn.execute("UPDATE bot SET held = 'by a test', policy_version = 2 WHERE id = %s", [bot])
    one.ask(0, (failure(first),))
    dispatch.settle()
    cancel_jobs(conn, bot, [3, 4, 5])
    conn.execute("UPDATE bot SET held = NULL, policy_version = 3 WHERE id = %s", [bot])
    dispatch.feed()
    assert given(machine(dispatch, alice, 4).ask()) == []
    check(conn, idle=True)


def test_dispatch_waits_for_nobody_who_has_a_gang(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, dsn: str
) -> None:
    bot, plain = make_gangs(conn, alice, 3), make_bot(conn, alice, 1)
    dispatch.feed()
    assert given(machine(dispatch, alice, 1).ask()) == [(bot, 0)]
    other_host = machine(dispatch, alice, 4)
    with db.connect(dsn, "test") as other:
        other.execute("SELECT FROM gang FOR UPDATE")
        assert given(other_host.ask(3)) == [(plain, 0)]
    dispatch.feed()
    assert given(machine(dispatch, alice, 4).ask(3)) == [(bot, 1), (bot, 2)]
    check(conn)


def test_what_was_taken_in_vain_is_still_lacking(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    """The members of the older gang come in for another round than the batch knows of."""
    small = "JobRequirements = Host.NumCpus <= 2; Rank = 9;"
    older, younger = make_gangs(conn, alice, 3, policy=small), make_gangs(conn, alice, 2)
    dispatch.feed()
    assert given(machine(dispatch, alice, 1).ask()) == [(older, 0)]
    away = dispatch.buffer.take_fresh(older, 2, generation=63)
    dispatch.buffer.free([slot.number for slot in away])
    later = [Item(older, seq, 1, 1, WHY.index("first"), b"") for seq in (1, 2)]
    dispatch.buffer.put(later, 0.0)
    asking = [machine(dispatch, alice, 2) for _ in range(2)]
    requests = {keys.token_hash(one.token): one.request() for one in asking}
    dispatcher = Dispatcher(generation=62)
    served = transact(conn, dispatch.buffer, dispatcher, requests, ())
    replies = [reply for reply in served.answers.values() if isinstance(reply, ReplyParts)]
    assert [reply.assignments for reply in replies] == [[], []]
    assert "gang that began before" in replies[1].message
    assert younger in dispatcher.candidates


def test_it_is_known_of_all_gangs_whether_they_gather_and_of_those_at_hand_what_they_lack(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bots = [make_gangs(conn, alice, 2) for _ in range(2)]
    dispatch.feed()
    begun = "INSERT INTO gang (bot, number, size, gather_until) VALUES (%s, 0, 2, now())"
    for bot in bots:
        conn.execute(begun, [bot])
    known = conn.execute(SQL["gathering"], {"bots": bots[:1]}).fetchall()
    assert [(bot, lacks) for bot, _, _, lacks in known] == [(bots[0], [0, 1])]
    assert sorted(conn.execute(SQL["all_gathering"]).fetchall()) == [(bot, 0) for bot in bots]
