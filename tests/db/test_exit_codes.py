from dataclasses import replace

import pytest
from tests.db.dispatching import Dispatch, caller, success
from tests.factories import make_bot, make_host

from gridbot_client.protocol.messages import Assignment, Manifest, Report
from gridbot_server.storage.db import Connection

MANIFEST = Manifest("alice", ("true",), exit_codes=(0, 3)).text()


def ended_with(item: Assignment, code: int) -> Report:
    return replace(success(item), exit_code=code)


@pytest.mark.parametrize("validator", ["exact", "text", "numbers:rel=0.5"])
def test_answers_with_different_exit_codes_do_not_agree(
    dispatch: Dispatch, conn: Connection, alice: int, validator: str
) -> None:
    bot = make_bot(conn, alice, manifest=MANIFEST, quorum=2, validator=validator)
    for code in (0, 3, 3):
        client = caller(dispatch, alice, make_host(conn, alice))
        client.host["ManifestVersion"] = 3
        dispatch.feed()
        (given,) = client.ask(1).assignments
        client.ask(0, (ended_with(given, code),))
        dispatch.settle()
    rows = conn.execute("SELECT exit_code, valid FROM ended WHERE bot = %s ORDER BY replica", [bot])
    assert rows.fetchall() == [(0, False), (3, True), (3, True)]
    query = "SELECT state, done FROM bot WHERE id = %s"
    assert conn.execute(query, [bot]).fetchone() == ("done", 1)


def test_a_client_that_does_not_say_that_it_knows_exit_codes_gets_no_such_job(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    make_bot(conn, alice, manifest=MANIFEST)
    client = caller(dispatch, alice)
    dispatch.feed()
    reply = client.ask(1)
    assert reply.assignments == ()
    assert "the client is too old for the BOT's exit codes" in reply.message
    client.host["ManifestVersion"] = 3
    assert len(client.ask(1).assignments) == 1
