"""When the transitioner is told that hosts have reported."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.db.dispatching import Caller, Dispatch, success
from tests.factories import make_bot

from gridbot_server.dispatch.dispatcher import Dispatcher
from gridbot_server.dispatch.transaction import transact
from gridbot_server.signing import keys
from gridbot_server.storage import db
from gridbot_server.storage.db import PostgresConnection

JOBS = 60


@pytest.mark.parametrize(("first", "pause"), [(1, 0.03), (17, 0.2)])
def test_reports_are_told_at_once_and_then_with_a_pause_that_many_make_longer(
    dispatch: Dispatch,
    conn: PostgresConnection,
    dsn: str,
    alice: int,
    client: Caller,
    first: int,
    pause: float,
) -> None:
    make_bot(conn, alice, jobs=JOBS, policy=f"Concurrency = {JOBS};")
    dispatch.feed()
    held = list(client.ask().assignments)
    now = 1000.0
    dispatcher = Dispatcher(generation=62, clock=lambda: now)
    with closing(db.connect(dsn, autocommit=True)) as listener:
        listener.execute("LISTEN gridbot_reports")

        def told(reports: int) -> bool:
            """Whether one was told when a request brought so many reports, or those before."""
            brought = tuple(success(held.pop()) for _ in range(reports))
            requests = {keys.token_hash(client.token): client.request(0, brought)}
            transact(conn, dispatch.buffer, dispatcher, requests, ())
            return _heard(listener)

        assert not told(0)
        assert told(first)
        now += pause - 0.01
        assert not told(2)
        now += 0.02
        assert told(0)  # of those two
        now += 1.0
        assert not told(0)


def _heard(listener: PostgresConnection) -> bool:
    listener.execute("SELECT")  # its answer comes after what was notified before
    return any(True for _ in listener.notifies(timeout=0))
