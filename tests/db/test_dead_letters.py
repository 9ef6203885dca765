from __future__ import annotations

import pytest
from tests.db.dispatching import Dispatch, caller, success
from tests.factories import make_bot

from gridbot_server.cycles import transitioner
from gridbot_server.storage import invariants
from gridbot_server.storage.db import Connection

JOBS, BAD = 40, (7, 23)
FAIL = """
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'job % is bad', NEW.seq; END $$;
CREATE TRIGGER fail BEFORE INSERT ON outcome FOR EACH ROW
WHEN (NEW.seq IN (7, 23)) EXECUTE FUNCTION fail();
"""


@pytest.fixture
def bot(dispatch: Dispatch, conn: Connection, alice: int) -> int:
    """A BOT all of whose jobs were answered, at two of which every decision fails."""
    made = make_bot(conn, alice, policy="Concurrency = 99", jobs=JOBS)
    client = caller(dispatch, alice)
    dispatch.feed()
    given = client.ask(JOBS).assignments
    assert len(given) == JOBS
    client.ask(0, tuple(success(item) for item in given))
    conn.execute(FAIL.encode())
    return made


def test_jobs_that_cannot_be_decided_hold_up_no_others_and_are_named(
    dispatch: Dispatch, conn: Connection, bot: int
) -> None:
    dispatch.settle()
    assert finished(conn) == set(range(JOBS)) - set(BAD)
    (broken,) = invariants.check(conn, idle=True)
    assert broken.name == "no_job_is_set_aside"
    told = {(row["bot"], row["seq"], row["error"].splitlines()[0]) for row in broken.examples}
    assert told == {(bot, seq, f"RaiseException: job {seq} is bad") for seq in BAD}


def test_a_start_of_the_server_decides_them_when_it_can(
    dispatch: Dispatch, conn: Connection, bot: int
) -> None:
    dispatch.settle()
    transitioner.try_again(conn)
    dispatch.settle()
    assert {item.name for item in invariants.check(conn, idle=True)} == {"no_job_is_set_aside"}
    conn.execute("DROP TRIGGER fail ON outcome")
    transitioner.try_again(conn)
    dispatch.settle()
    dispatch.feed()
    assert finished(conn) == set(range(JOBS))
    assert invariants.check(conn, idle=True) == []


def finished(conn: Connection) -> set[int]:
    """Jobs that have an outcome."""
    return {seq for (seq,) in conn.execute("SELECT seq FROM outcome").fetchall()}
