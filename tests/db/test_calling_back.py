"""Replicas that a client holds ahead are called back for more urgent ones."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.db.dispatching import Caller, Dispatch, dispatching, success
from tests.factories import make_bot

from gridbot_client.protocol.messages import WorkReply
from gridbot_server.dispatch.engine import Engine
from gridbot_server.storage import invariants
from gridbot_server.storage.db import PostgresConnection
from gridbot_server.storage.moves import relinquish
from gridbot_server.storage.states import Event


@pytest.fixture
def dispatch(dsn: str, conn: PostgresConnection, tmp_path: Path) -> Iterator[Dispatch]:
    with dispatching(dsn, conn, tmp_path / "test.buffer") as made:
        yield made


def ask(client: Caller, want: int, unstarted: int) -> WorkReply:
    return client.take(client.send(replace(client.request(want), unstarted=unstarted)))


def give_back(conn: PostgresConnection, client: Caller, reply: WorkReply) -> int:
    """As `POST /clients/self/return` does."""
    row = conn.execute("SELECT client FROM lease LIMIT 1").fetchone()
    assert row is not None
    bots, seqs, replicas = zip(*reply.call_back, strict=True)
    values = {"client": row[0], "bots": [*bots], "seqs": [*seqs], "replicas": [*replicas]}
    client.holding = [name for name in client.holding if name not in reply.call_back]
    return relinquish(conn, Event.RETURNED, values)


@pytest.mark.parametrize("want", [0, 4], ids=["asks for none", "asks for more"])
def test_what_has_not_begun_gives_way_to_what_is_more_urgent_and_is_run_later(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller, want: int
) -> None:
    patient = make_bot(conn, alice, 4)
    dispatch.feed()
    held = [item.id for item in client.ask(4).assignments]
    assert len(held) == 4
    assert ask(client, 0, 2).call_back == ()
    urgent = make_bot(conn, alice, 2, policy="Rank = 1")
    dispatch.feed()
    reply = ask(client, want, 2)
    assert (reply.call_back, reply.assignments) == ((held[3], held[2]), ())
    assert give_back(conn, client, reply) == 2
    given = client.ask(4).assignments
    assert {item.id.bot for item in given[:2]} == {urgent}
    client.ask(0, tuple(map(success, client.holding)))
    client.holding = []
    dispatch.settle()
    dispatch.feed()
    while given := client.ask(9).assignments:
        client.ask(0, tuple(map(success, given)))
        dispatch.settle()
        dispatch.feed()
    done = "SELECT id, state, done, failed FROM bot ORDER BY id"
    assert conn.execute(done).fetchall() == [(patient, "done", 4, 0), (urgent, "done", 2, 0)]
    assert invariants.check(conn, idle=True) == []


def test_a_host_is_not_asked_again_at_once(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, 4)
    dispatch.feed()
    client.ask(4)
    urgent = make_bot(conn, alice, 9, policy="Rank = 1")
    dispatch.feed()
    assert len(ask(client, 0, 2).call_back) == 2
    reply = ask(client, 1, 2)
    assert (reply.call_back, [item.id.bot for item in reply.assignments]) == ((), [urgent])


def test_no_other_web_process_asks_at_once_either(
    dispatch: Dispatch, dsn: str, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, 4)
    dispatch.feed()
    client.ask(4)
    make_bot(conn, alice, 9, policy="Rank = 1")
    dispatch.feed()
    assert len(ask(client, 0, 2).call_back) == 2
    with closing(Engine(dsn, dispatch.buffer.path)) as other:
        dispatch.engine = other
        assert ask(client, 0, 2).call_back == ()
        conn.execute("UPDATE client SET called_back_at = called_back_at - interval '1 minute'")
    with closing(Engine(dsn, dispatch.buffer.path)) as third:
        dispatch.engine = third
        assert len(ask(client, 0, 2).call_back) == 2


def test_what_has_begun_is_not_called_back(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, 4)
    dispatch.feed()
    client.ask(4)
    make_bot(conn, alice, 9, policy="Rank = 1")
    dispatch.feed()
    assert client.ask(0).call_back == ()
