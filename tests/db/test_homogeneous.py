"""`HomogeneousBy`: a job's replicas go to hosts of one kind."""

from tests.db.dispatching import Caller, Dispatch, caller, failure, success
from tests.factories import HOST, make_bot

from gridbot_server.storage.db import Connection
from gridbot_server.storage.invariants import check

POLICY = "HomogeneousBy = Host.CpuVendor;"


def host_of(dispatch: Dispatch, owner: int, vendor: str | None) -> Caller:
    made = caller(dispatch, owner)
    made.host = {**HOST, "Name": vendor or "none", **({"CpuVendor": vendor} if vendor else {})}
    return made


def ask(dispatch: Dispatch, host: Caller) -> list[int]:
    """Numbers of the replicas that it is given."""
    dispatch.feed()
    return [item.id.replica for item in host.ask().assignments]


def test_further_replicas_go_to_hosts_of_the_first_ones_kind(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bot = make_bot(conn, alice, quorum=3, policy=POLICY)
    assert ask(dispatch, host_of(dispatch, alice, "GenuineIntel")) == [1]
    assert ask(dispatch, host_of(dispatch, alice, "AuthenticAMD")) == []
    assert ask(dispatch, host_of(dispatch, alice, None)) == []
    assert len(ask(dispatch, host_of(dispatch, alice, "GenuineIntel"))) == 1
    assert len(ask(dispatch, host_of(dispatch, alice, "GenuineIntel"))) == 1
    row = conn.execute("SELECT kind FROM job_kind WHERE bot = %s", [bot]).fetchone()
    assert row == ('"GenuineIntel"',)
    assert check(conn, idle=False) == []


def test_each_job_is_bound_by_its_own_first_replica(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    make_bot(conn, alice, jobs=2, quorum=2, policy=f"{POLICY} Concurrency = 1;")
    for vendor in ("GenuineIntel", "AuthenticAMD", "GenuineIntel", "AuthenticAMD"):
        assert len(ask(dispatch, host_of(dispatch, alice, vendor))) == 1
    found = conn.execute(
        "SELECT l.seq, count(DISTINCT h.ad->>'CpuVendor'), count(*)"
        "  FROM lease l JOIN host h ON h.id = l.host GROUP BY l.seq ORDER BY 1"
    )
    assert found.fetchall() == [(0, 1, 2), (1, 1, 2)]


def test_a_further_replica_after_an_error_stays_with_the_kind(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    make_bot(conn, alice, policy=POLICY)
    first = host_of(dispatch, alice, "GenuineIntel")
    dispatch.feed()
    (item,) = first.ask().assignments
    first.ask(0, (failure(item),))
    dispatch.settle()
    assert ask(dispatch, host_of(dispatch, alice, "AuthenticAMD")) == []
    assert ask(dispatch, host_of(dispatch, alice, "GenuineIntel")) == [2]


def test_bots_without_it_are_bound_to_nothing(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bot = make_bot(conn, alice, quorum=2)
    for vendor in ("GenuineIntel", "AuthenticAMD"):
        host = host_of(dispatch, alice, vendor)
        dispatch.feed()
        (item,) = host.ask().assignments
        host.ask(0, (success(item),))
    dispatch.settle()
    assert conn.execute("SELECT done FROM bot WHERE id = %s", [bot]).fetchone() == (1,)
    assert conn.execute("SELECT count(*) FROM job_kind").fetchone() == (0,)
