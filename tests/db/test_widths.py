"""What hosts have in progress or unjudged among strangers is bounded by what they have proven."""

from __future__ import annotations

import pytest
from tests.db.dispatching import Caller, Dispatch, caller, failure, success
from tests.factories import HOST, make_bot, make_client, make_host, make_owner

from gridbot_client.protocol.messages import Report
from gridbot_server.cycles import deadline
from gridbot_server.storage.db import Connection

GREEDY = {**HOST, "NumCpus": 4096}


@pytest.fixture
def bot(dispatch: Dispatch, conn: Connection, alice: int) -> int:
    """A BOT that the project has signed: anybody's machine may run it."""
    made = make_bot(conn, alice, jobs=200, signature=b"by the project")
    dispatch.feed()
    return made


def stranger(dispatch: Dispatch, name: str) -> Caller:
    return greedy(dispatch, make_owner(dispatch.conn, name))


def greedy(dispatch: Dispatch, owner: int) -> Caller:
    made = caller(dispatch, owner)
    made.host = dict(GREEDY)
    return made


def given(client: Caller, *reports: Report) -> int:
    return len(client.ask(reports=reports).assignments)


def unjudged(conn: Connection) -> int:
    row = conn.execute("SELECT count(*) FROM unjudged").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.usefixtures("bot")
def test_a_newcomer_gets_eight_replicas_whatever_it_claims(dispatch: Dispatch) -> None:
    client = stranger(dispatch, "bob")
    assert [given(client), given(client)] == [8, 0]


@pytest.mark.usefixtures("bot")
def test_who_reports_without_being_judged_gets_nothing_more(dispatch: Dispatch) -> None:
    client = stranger(dispatch, "bob")
    first = client.ask().assignments
    assert given(client, *map(success, first)) == 0
    dispatch.settle()
    assert given(client) == 16


@pytest.mark.usefixtures("bot")
def test_hosts_of_one_owner_share_the_start(dispatch: Dispatch, conn: Connection) -> None:
    owner = make_owner(conn, "bob")
    hosts = [greedy(dispatch, owner) for _ in range(5)]
    assert sum(map(given, hosts)) == 8


@pytest.mark.usefixtures("bot")
def test_nodes_of_a_grid_share_a_width_whoever_sends_pilots_there(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    nodes = []
    for name in ("bob", "carol"):
        owner = make_owner(conn, name)
        host = make_host(conn, owner, grid="cluster")
        _, token = make_client(conn, owner, host, grid="cluster", trusts=[alice], accepts=[alice])
        nodes.append(Caller(dispatch, token, dict(GREEDY)))
    assert sum(map(given, nodes)) == 8


@pytest.mark.usefixtures("bot")
def test_own_machines_and_dedicated_ones_are_not_bounded(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    assert given(greedy(dispatch, alice)) > 8
    _, token = make_client(conn, make_owner(conn, "operator"), dedicated=True)
    assert given(Caller(dispatch, token, dict(GREEDY))) > 8
    assert unjudged(conn) == 0


@pytest.mark.usefixtures("bot")
def test_failures_and_wrong_answers_narrow_a_host(dispatch: Dispatch, conn: Connection) -> None:
    client = stranger(dispatch, "bob")
    client.ask(want=0, reports=tuple(map(failure, client.ask().assignments)))
    dispatch.settle()
    assert given(client) == 3
    assert conn.execute("SELECT width FROM crew").fetchall() == [(pytest.approx(8 * 0.9**8),)]


@pytest.mark.usefixtures("bot")
def test_what_expires_counts_no_more(dispatch: Dispatch, conn: Connection) -> None:
    client = stranger(dispatch, "bob")
    held = [item.id for item in client.ask().assignments]
    assert unjudged(conn) == 8
    dispatch.expire(*held)
    assert unjudged(conn) == 0


def test_what_a_cancelled_bot_had_counts_no_more(
    dispatch: Dispatch, conn: Connection, bot: int
) -> None:
    stranger(dispatch, "bob").ask()
    conn.execute("UPDATE bot SET state = 'cancelled', ended_at = now() WHERE id = %s", [bot])
    deadline.sweep_cancelled(conn)
    assert unjudged(conn) == 0


@pytest.mark.usefixtures("bot")
def test_an_honest_host_of_64_cores_is_full_after_five_rounds(dispatch: Dispatch) -> None:
    client = stranger(dispatch, "bob")
    client.host["NumCpus"] = 64
    held, sizes = list(client.ask().assignments), []
    while held:
        sizes.append(len(held))
        reports = tuple(map(success, held))
        client.ask(want=0, reports=reports)
        dispatch.settle()
        dispatch.feed()
        held = list(client.ask(want=200).assignments)
    assert sizes[:4] == [8, 16, 32, 64]


@pytest.mark.usefixtures("bot")
def test_a_short_job_is_not_waited_for_a_whole_day(dispatch: Dispatch, conn: Connection) -> None:
    short = make_bot(conn, make_owner(conn, "dora"), jobs=1, signature=b"by the project")
    conn.execute("UPDATE bot SET policy = 'Rank = 1', manifest = replace(manifest,"
                 " '\"seconds\":86400', '\"seconds\":300') WHERE id = %s", [short])  # fmt: skip
    dispatch.feed()
    (first, *_) = sorted(stranger(dispatch, "bob").ask().assignments, key=lambda x: -x.id.bot)
    assert (first.id.bot, first.deadline_seconds) == (short, 3900)
