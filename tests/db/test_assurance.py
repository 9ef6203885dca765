"""Answers from strangers: provisional until they are sure, recalled when somebody is caught."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.db.dispatching import Caller, Dispatch, caller, success
from tests.factories import make_bot, make_owner

from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.cycles import provisional as provisional_outcomes
from gridbot_server.cycles import reputation, track_records, transitioner
from gridbot_server.cycles.crews import crews_at_work
from gridbot_server.matching import track_record
from gridbot_server.signing import keys
from gridbot_server.storage import invariants
from gridbot_server.storage.db import Connection

TRUSTED = 200  # checks passed: beyond what an Assurance of 0.999 asks for


def assured(conn: Connection, owner: int, jobs: int, **columns: object) -> int:
    """A BOT that anybody's machine may run."""
    values = {"assurance": 0.999, **columns}
    return make_bot(
        conn, owner, jobs, signature=b"by the project", program=b"p", policy="Concurrency = 99",
        **values,
    )  # fmt: skip


def strangers(dispatch: Dispatch, count: int) -> list[Caller]:
    return [
        caller(dispatch, make_owner(dispatch.conn, f"stranger{number}")) for number in range(count)
    ]


def trust(conn: Connection, *clients: Caller, streak: int = TRUSTED) -> None:
    """Let hosts have passed checks, which made them as wide."""
    for client in clients:
        host, crew = hosts_and_crews(conn, client)
        conn.execute("UPDATE host SET width = %s WHERE 'host ' || id = %s", [streak, host])
        conn.execute("INSERT INTO crew (name, width) VALUES (%s, %s)", [crew, streak])
        for who in (host, crew):
            conn.execute(
                "INSERT INTO track_record VALUES (%s, 'p', %s, 0, %s, 0)",
                [who, streak, streak],
            )


def hosts_and_crews(conn: Connection, client: Caller) -> Sequence[str]:
    row = conn.execute(
        "SELECT 'host ' || host.id, crew FROM client JOIN host ON host.id = client.host"
        " WHERE hash = %s",
        [keys.token_hash(client.token)],
    ).fetchone()
    assert row is not None
    return list(row)


def tell_truth(name: ReplicaId) -> str:
    return f"answer {name.seq}"


def lie(name: ReplicaId) -> str:
    return f"lie {name.seq}"


def work(
    dispatch: Dispatch,
    *clients: Caller,
    say: Callable[[ReplicaId], str] = tell_truth,
    want: int = 8,
) -> list[ReplicaId]:
    """Let clients ask, answer what they hold, and the server settle it."""
    done = []
    dispatch.feed()
    for client in clients:
        client.ask(want)
        done += client.holding
        reports = tuple(success(name, say(name)) for name in client.holding)
        client.ask(want=0, reports=reports)
        dispatch.feed()
    dispatch.settle()
    return done


def outcomes(conn: Connection, bot: int) -> dict[int, str]:
    """What each finished job gave."""
    rows = conn.execute(
        "SELECT o.seq, convert_from(f.content, 'UTF8') FROM outcome o JOIN output f"
        " ON (f.bot, f.seq, f.replica) = (o.bot, o.seq, o.canonical) WHERE o.bot = %s",
        [bot],
    ).fetchall()
    return dict(rows)


def provisional(conn: Connection, bot: int) -> int:
    row = conn.execute(
        "SELECT count(DISTINCT seq), (SELECT provisional FROM bot WHERE id = %s)"
        " FROM provisional WHERE bot = %s", [bot, bot],
    ).fetchone()  # fmt: skip
    assert row is not None
    assert row[0] == row[1], "the BOT counts them"
    return int(row[0])


def events(conn: Connection, bot: int) -> list[str]:
    rows = conn.execute("SELECT kind FROM result_event WHERE bot = %s ORDER BY n", [bot])
    return [kind for (kind,) in rows]


def credit(conn: Connection) -> float:
    row = conn.execute("SELECT coalesce(sum(total), 0) FROM host_credit").fetchone()
    assert row is not None
    return float(row[0])


@pytest.fixture(autouse=True)
def _sound(conn: Connection) -> object:
    yield
    assert [str(item) for item in invariants.check(conn, idle=False)] == []


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No coin says that a trusted host's answer is checked."""
    monkeypatch.setattr(track_record, "LEAST_SHARE", 0.0)
    monkeypatch.setattr(track_record, "_SHARE", 0.0)


def test_an_own_machines_answer_is_final_at_once(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bot = assured(conn, alice, 3)
    work(dispatch, caller(dispatch, alice))
    assert len(outcomes(conn, bot)) == 3
    assert events(conn, bot) == ["confirmed"] * 3


def test_a_newcomers_answer_waits_for_another_owners(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bot = assured(conn, alice, 1)
    bob, carol, dora = strangers(dispatch, 3)
    work(dispatch, bob)
    assert work(dispatch, bob) == []
    assert outcomes(conn, bot) == {}
    assert credit(conn) == 0
    work(dispatch, carol)
    assert outcomes(conn, bot) == {}
    work(dispatch, dora)
    assert outcomes(conn, bot) == {0: "answer 0"}
    assert credit(conn) > 0


def test_a_trusted_hosts_check_makes_a_newcomers_answer_sure(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bot = assured(conn, alice, 2)
    bob, carol = strangers(dispatch, 2)
    trust(conn, carol)
    work(dispatch, bob)
    work(dispatch, carol)
    assert outcomes(conn, bot) == {0: "answer 0", 1: "answer 1"}
    assert conn.execute(
        "SELECT good, wrong FROM track_record WHERE who = %s", [hosts_and_crews(conn, bob)[0]]
    ).fetchall() == [(2, 0)]


@pytest.mark.parametrize("assurance, checks", [(0.97, 3), (0.999, 8)])
@pytest.mark.usefixtures("unchecked")
def test_what_only_a_trusted_host_says_is_provisional_until_the_end(
    dispatch: Dispatch, conn: Connection, alice: int, assurance: float, checks: int
) -> None:
    bot = assured(conn, alice, 8, assurance=assurance)
    bob, carol = strangers(dispatch, 2)
    trust(conn, bob, carol)
    work(dispatch, bob, want=7)
    assert (outcomes(conn, bot), provisional(conn, bot)) == ({}, 7)
    work(dispatch, bob)
    assert provisional(conn, bot) == 8
    work(dispatch, carol)  # so many of eight are checked at the end, and settle the others
    assert len(outcomes(conn, bot)) == 8
    assert provisional(conn, bot) == 0
    assert events(conn, bot) == ["provisional"] * 8 + ["confirmed"] * 8
    row = conn.execute("SELECT count(*) FROM ended WHERE bot = %s", [bot]).fetchone()
    assert row == (8 + checks,)


@pytest.mark.usefixtures("unchecked")
def test_at_the_end_nothing_more_is_checked_before_what_was_chosen_has_come_back(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bot = assured(conn, alice, 40, assurance=0.97)
    bob, carol = strangers(dispatch, 2)
    trust(conn, bob, carol)
    work(dispatch, bob, want=40)
    checked = [work(dispatch, carol, want=1) for _ in range(6)]
    assert [len(done) for done in checked] == [1, 1, 1, 0, 0, 0]
    assert (len(outcomes(conn, bot)), provisional(conn, bot)) == (40, 0)


@pytest.mark.usefixtures("unchecked")
def test_a_lie_that_is_caught_recalls_all_that_the_host_said(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bot = assured(conn, alice, 8)
    eve, carol, dora, frank, gil = strangers(dispatch, 5)
    trust(conn, eve, carol, dora, frank, gil)
    work(dispatch, eve, say=lie)
    assert provisional(conn, bot) == 8
    for honest in (carol, dora, frank, gil, carol, dora, frank, gil):
        work(dispatch, honest)
    assert outcomes(conn, bot) == {seq: f"answer {seq}" for seq in range(8)}
    told = events(conn, bot)
    assert told.count("recalled") == told.count("provisional") == 8
    assert told.count("confirmed") == 8
    caught = conn.execute(
        "SELECT streak, wrong > 0 FROM track_record WHERE who = %s", [hosts_and_crews(conn, eve)[0]]
    ).fetchall()
    assert caught == [(0, True)]
    assert [row[0] for row in conn.execute("SELECT total FROM host_credit h JOIN host ON"
            " host.id = h.host WHERE 'host ' || host.id = %s", [hosts_and_crews(conn, eve)[0]])] in ([], [0])  # fmt: skip  # noqa: E501


def test_a_quorum_without_a_trusted_member_is_provisional_until_the_end(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bot = assured(conn, alice, 10, assurance=None, quorum=2)
    bob, carol, dora = strangers(dispatch, 3)
    work(dispatch, bob, want=4)
    work(dispatch, carol, want=1)
    assert (outcomes(conn, bot), provisional(conn, bot)) == ({}, 1)
    for one in 4 * [dora, bob, carol]:
        work(dispatch, one)
    assert len(outcomes(conn, bot)) == 10


def test_a_quorum_is_judged_anew_when_a_member_is_caught(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bot = assured(conn, alice, 8, assurance=None, quorum=2)
    eve, mallory, *honest = strangers(dispatch, 8)
    work(dispatch, eve, say=lie, want=4)
    for _ in range(4):
        work(dispatch, mallory, say=lie, want=1)
    assert provisional(conn, bot) == 4
    work(dispatch, eve, say=lie, want=4)
    for one in 3 * honest:
        work(dispatch, one)
    assert outcomes(conn, bot) == {seq: f"answer {seq}" for seq in range(8)}


@pytest.mark.usefixtures("unchecked")
def test_who_agrees_with_others_grows_unless_it_has_its_full_width(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bot = assured(conn, alice, 2, assurance=None, quorum=2)
    bob, carol = strangers(dispatch, 2)
    trust(conn, bob, carol)
    bobs_crew, carols_crew = (hosts_and_crews(conn, client)[1] for client in (bob, carol))
    conn.execute("UPDATE host SET width = 1024")
    conn.execute("UPDATE crew SET width = 1024 WHERE name = %s", [bobs_crew])
    work(dispatch, bob, want=1)
    conn.execute("UPDATE host SET recent_at = '-infinity'")
    work(dispatch, carol, want=1)
    assert provisional(conn, bot) == 1
    rated = conn.execute("SELECT crew FROM host WHERE recent_at > '-infinity'").fetchall()
    assert rated == [(carols_crew,)]
    widths = dict(conn.execute("SELECT name, width::int FROM crew").fetchall())
    assert widths == {bobs_crew: 1024, carols_crew: TRUSTED + 1}


def test_machines_of_two_owners_do_not_all_wait_for_the_first_that_is_trusted(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    """What untrusted owners prove each other right in is bounded: too little for five machines."""
    jobs = 250
    bot = assured(conn, alice, jobs)
    owners = [make_owner(conn, name) for name in ("bob", "carol")]
    machines = [caller(dispatch, owner) for owner in owners for _ in range(5)]
    conn.execute("UPDATE client SET created_at = now() - interval '1 hour'")
    for _ in range(30):
        work(dispatch, *machines)
    assert len(outcomes(conn, bot)) == jobs


def test_the_copy_of_a_check_never_goes_to_the_same_owner(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    assured(conn, alice, 4)
    owner = make_owner(conn, "farm")
    one, other = caller(dispatch, owner), caller(dispatch, owner)
    assert len(work(dispatch, one)) == 4
    assert work(dispatch, other) == []


def test_a_crash_between_check_verdict_and_recall_leaves_them_to_be_done(
    dispatch: Dispatch, conn: Connection, alice: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bot = assured(conn, alice, 8, assurance=None, quorum=2)
    eve, mallory, *honest = strangers(dispatch, 8)
    work(dispatch, eve, say=lie, want=4)
    for _ in range(4):
        work(dispatch, mallory, say=lie, want=1)
    work(dispatch, eve, say=lie, want=4)
    for one in 3 * honest:
        dispatch.feed()
        one.ask()
        one.ask(want=0, reports=tuple(success(name, tell_truth(name)) for name in one.holding))
        _settle_with_crashes(dispatch, monkeypatch)
    assert outcomes(conn, bot) == {seq: f"answer {seq}" for seq in range(8)}
    assert [str(item) for item in invariants.check(conn, idle=True)] == []


@pytest.mark.usefixtures("unchecked")
def test_crashes_tell_no_lie_of_a_trusted_host_as_final_and_no_job_twice(
    dispatch: Dispatch, conn: Connection, alice: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bot = assured(conn, alice, 8)
    eve, *honest = strangers(dispatch, 5)
    trust(conn, eve, *honest)
    for one, say in [(eve, lie), *((host, tell_truth) for host in 2 * honest)]:
        dispatch.feed()
        one.ask()
        one.ask(want=0, reports=tuple(success(name, say(name)) for name in one.holding))
        _settle_with_crashes(dispatch, monkeypatch)
        assert not any(text.startswith("lie") for text in outcomes(conn, bot).values())
    assert outcomes(conn, bot) == {seq: f"answer {seq}" for seq in range(8)}
    told = conn.execute("SELECT seq, kind FROM result_event WHERE bot = %s ORDER BY n", [bot])
    by_job: dict[int, list[str]] = {}
    for seq, kind in told:
        by_job.setdefault(seq, []).append(kind)
    assert by_job == {seq: ["provisional", "recalled", "confirmed"] for seq in range(8)}
    assert [str(item) for item in invariants.check(conn, idle=True)] == []


def _settle_with_crashes(dispatch: Dispatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the transitioner at each step in turn, then let it run."""
    conn = dispatch.conn
    steps = [
        (reputation, "follow"), (track_records, "learn"), (track_records, "_wake"),
        (provisional_outcomes, "keep"), (provisional_outcomes, "_tell"),
        (track_records, "pass_checks"), (provisional_outcomes, "close"),
    ]  # fmt: skip
    for module, step in steps:
        waiting = conn.execute("SELECT count(*) FROM pending").fetchone()
        with monkeypatch.context() as broken:
            broken.setattr(module, step, _killed)
            try:
                transitioner.run_once(conn)
            except _Killed:
                assert conn.execute("SELECT count(*) FROM pending").fetchone() == waiting
        assert [str(item) for item in invariants.check(conn, idle=False)] == []
    dispatch.settle()


class _Killed(BaseException):
    """The end of a process: nothing of it is caught on the way out."""


def _killed(*_: object) -> None:
    raise _Killed


def test_the_crews_of_an_older_bot_are_not_counted_for_each_batch(
    conn: Connection, alice: int
) -> None:
    """There may be a replica of each of very many jobs."""
    bot = assured(conn, alice, 9)

    def give(*crews: str) -> None:
        for crew in crews:
            conn.execute(
                "INSERT INTO unjudged SELECT %s, count(*), 1, 1, %s FROM unjudged", [bot, crew]
            )

    give("one", "other", "other")
    assert crews_at_work(conn, bot) == (0, 0), "while it is young, those count that ask for work"
    conn.execute("UPDATE bot SET created_at = now() - interval '1 hour'")
    assert crews_at_work(conn, bot) == (2, 0)
    conn.execute("UPDATE bot SET crews_seconds = 1")
    give("third")
    assert crews_at_work(conn, bot) == (2, 0)
    conn.execute("UPDATE bot SET crews_counted_at = crews_counted_at - interval '31 s'")
    assert crews_at_work(conn, bot) == (3, 0)
