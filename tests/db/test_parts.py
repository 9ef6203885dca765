"""Claims about transitioners that share the BOTs of a database."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.db.dispatching import Caller, Dispatch, caller, daemons, success
from tests.factories import make_bot, make_host
from tests.system.deployment import eventually

from gridbot_server.cycles import parts, transitioner
from gridbot_server.cycles.parts import BotPart, Division
from gridbot_server.settings import Settings
from gridbot_server.storage import db, invariants
from gridbot_server.storage.db import PostgresConnection
from gridbot_server.storage.rows import fetch_only_value

Open = Callable[[], PostgresConnection]


@pytest.fixture
def session(dsn: str) -> Iterator[Open]:
    """Opens connections as transitioners do."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(db.connect(dsn, "gridbot-transitioner", autocommit=True))


@pytest.fixture(autouse=True)
def _in_order(conn: PostgresConnection) -> Iterator[None]:
    yield
    assert [str(item) for item in invariants.check(conn, idle=False)] == []


def parts_of(sessions: list[PostgresConnection]) -> list[BotPart]:
    return sorted(Division().part(session) for session in sessions)


def test_those_that_are_there_divide_the_bots_and_who_goes_is_missed_at_once(
    session: Open,
) -> None:
    sessions = [session() for _ in range(3)]
    eventually(lambda: parts_of(sessions) == [(0, 3), (1, 3), (2, 3)])
    sessions.pop().close()
    eventually(lambda: parts_of(sessions) == [(0, 2), (1, 2)])


def test_one_that_is_alone_has_all(session: Open, conn: PostgresConnection) -> None:
    assert parts_of([session()]) == [parts.WHOLE]
    assert Division().part(conn) == parts.WHOLE  # no transitioner at all


def test_one_that_is_frozen_is_left_out_until_it_goes_on(session: Open) -> None:
    frozen, other = session(), session()
    eventually(lambda: parts_of([other]) == [(0, 1)])  # which asks, while the first one does not
    eventually(lambda: parts_of([frozen, other]) == [(0, 2), (1, 2)])


def test_the_list_is_looked_at_once_a_second(session: Open) -> None:
    now = 1000.0
    one, division = session(), Division(lambda: now)
    assert division.part(one) == (0, 1)
    session()
    assert division.part(one) == (0, 1)
    now += parts.LOOK_SECONDS
    assert division.part(one).of == 2


def test_a_transitioner_decides_jobs_of_its_part_alone(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bots = [make_bot(conn, alice, jobs=3) for _ in range(4)]
    answer_all(dispatch, wide_hosts(dispatch, alice))
    assert transitioner.run_once(conn, BotPart(0, 2)) == 6
    assert outcomes(conn) == {bot: (3, 3) for bot in bots if bot % 2 == 0}
    assert transitioner.run_once(conn, BotPart(0, 2)) == 0
    assert transitioner.run_once(conn, BotPart(1, 2)) == 6


def test_two_that_decide_at_the_same_time_count_all_for_the_hosts_they_share(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, session: Open
) -> None:
    bots = [make_bot(conn, alice, jobs=30) for _ in range(6)]
    answer_all(dispatch, wide_hosts(dispatch, alice))

    def settle(number: int) -> int:
        own, count = session(), 0
        while found := transitioner.run_once(own, BotPart(number, 2), limit=7):
            count += found
        return count

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(settle, range(2))) == 180
    assert outcomes(conn) == {bot: (30, 30) for bot in bots}
    assert conn.execute("SELECT sum(jobs_today) FROM host").fetchone() == (180,)
    earned = "SELECT (SELECT sum(credit) FROM outcome) - (SELECT sum(total) FROM host_credit)"
    assert conn.execute(earned).fetchone() == (pytest.approx(0.0, abs=1e-6),)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_what_a_killed_or_frozen_transitioner_had_to_decide_others_decide(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, dsn: str, tmp_path: Path, number: int
) -> None:
    settings = Settings(data=tmp_path / "server", dsn=dsn)
    settings.make_directories()
    hosts = wide_hosts(dispatch, alice)
    with daemons(settings, 3) as (one, *_):
        eventually(lambda: transitioners(conn) == 3, what="three transitioners")
        bots = [make_bot(conn, alice, jobs=40) for _ in range(6)]
        answer_all(dispatch, hosts)  # while they decide what is answered already
        one.send_signal(number)
        bots += [make_bot(conn, alice, jobs=40) for _ in range(6)]
        answer_all(dispatch, hosts)
        eventually(lambda: outcomes(conn) == {bot: (40, 40) for bot in bots}, what="all outcomes")


def wide_hosts(dispatch: Dispatch, owner: int) -> list[Caller]:
    """Three hosts that may hold all that there is."""
    machines = [make_host(dispatch.conn, owner, width=1024) for _ in range(3)]
    return [caller(dispatch, owner, machine) for machine in machines]


def answer_all(dispatch: Dispatch, hosts: Sequence[Caller]) -> None:
    """Let hosts take all jobs in turn, and answer them."""
    for host in itertools.cycle(hosts):
        dispatch.feed()
        given = host.ask(want=10).assignments
        if not given:
            break
        host.ask(want=0, reports=tuple(success(item) for item in given))


def outcomes(conn: PostgresConnection) -> dict[int, tuple[int, int]]:
    """How many outcomes each BOT has, and the last number that one has."""
    query = "SELECT bot, count(*), max(n) FROM outcome GROUP BY 1"
    return {bot: (count, last) for bot, count, last in conn.execute(query).fetchall()}


def transitioners(conn: PostgresConnection) -> int:
    query = (
        "SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'gridbot-transitioner'"
    )
    return fetch_only_value(conn, int, query.encode())
