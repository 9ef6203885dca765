from typing import Any

import pytest
from tests.db.dispatching import Caller, Dispatch, caller, success
from tests.factories import make_bot, make_owner

from gridbot_client.protocol.messages import Scalar
from gridbot_server.storage.db import Connection

REASON = "none of 1 BOTs suits this host now: the host owner's Requirements (1)"


def asking(client: Caller, **said: Scalar) -> Caller:
    client.host |= said
    return client


def stored(conn: Connection) -> list[tuple[dict[str, Any], str]]:
    """The ads of hosts, and which transaction wrote them."""
    return conn.execute("SELECT ad, xmin::text FROM host ORDER BY id").fetchall()


def test_a_host_works_only_for_whom_its_owner_likes(dispatch: Dispatch, conn: Connection) -> None:
    alice, eve = make_owner(conn, "alice"), make_owner(conn, "eve")
    signed = {"signature": b"the project's"}
    make_bot(conn, eve, jobs=3, policy="Rank = 9; Concurrency = 3", **signed)
    liked = make_bot(conn, alice, jobs=3, policy="Concurrency = 3", **signed)
    dispatch.feed()
    picky = asking(caller(dispatch, alice), Requirements='BOT.Owner != "eve" && BOT.Signed')
    assert {item.id.bot for item in picky.ask().assignments} == {liked}
    assert len(caller(dispatch, alice).ask().assignments) == 3


def test_a_live_attribute_decides_at_each_request(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, jobs=1)
    dispatch.feed()
    reply = asking(client, Requirements="LoadAvg < 0.5", LoadAvg=0.9).ask()
    assert (reply.assignments, reply.message) == ((), REASON)
    assert len(asking(client, LoadAvg=0.1).ask().assignments) == 1


@pytest.mark.parametrize(
    "text", ["LoadAvg <", "x" * 5000, "Memory = 4", False, "Host.Colour == 1", '"' + "x" * 4094]
)
def test_a_host_whose_policy_cannot_be_read_gets_no_work_and_may_report(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller, text: Scalar
) -> None:
    make_bot(conn, alice, jobs=2, policy="Concurrency = 1")
    dispatch.feed()
    (item,) = client.ask().assignments
    reply = asking(client, requirements=text).ask(reports=(success(item),))
    assert reply.acks == (item.id,)
    assert (reply.assignments, reply.message) == ((), REASON)


def test_a_constant_policy_may_come_as_itself(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, jobs=1)
    dispatch.feed()
    assert len(asking(client, Requirements=True).ask().assignments) == 1


def test_live_attributes_are_neither_stored_nor_a_reason_to_write(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    live: dict[str, Scalar] = {"LoadAvg": 0.5, "ClockMin": 7, "clockday": 1, "OnBattery": False}
    asking(client, Requirements="true", **live).ask()
    before = stored(conn)
    assert before[0][0]["Requirements"] == "true"
    assert not {name.lower() for name in before[0][0]} & {name.lower() for name in live}
    asking(client, LoadAvg=0.7, ClockMin=8).ask()
    assert stored(conn) == before
    asking(client, Requirements="false").ask()
    assert stored(conn)[0][0]["Requirements"] == "false"


def test_a_bots_policy_sees_the_hosts_live_attributes_and_that_it_is_signed(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    make_bot(conn, alice, jobs=1, policy="JobRequirements = Host.ClockMin > 600 && !Signed")
    dispatch.feed()
    assert asking(client, ClockMin=500).ask().assignments == ()
    assert len(asking(client, ClockMin=700).ask().assignments) == 1
