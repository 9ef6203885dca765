"""What a client is told that asks why it has no work."""

from __future__ import annotations

import pytest
from tests.factories import HOST, make_bot, make_host, make_lease
from tests.http.conftest import Person, Site

from gridbot_client.protocol.messages import Manifest, ReplicaId, Resources

PATH = "/api/v1/clients/self/prospects"


def told(client: Person) -> dict[str, int]:
    found = client("GET", PATH).json
    return {item["reason"]: item["bots"] for item in found["reasons"]}


@pytest.fixture
def client(site: Site, alice: Person) -> Person:
    return site.client_of(alice, host=make_host(site.conn, alice.id, HOST))


def test_a_client_learns_what_keeps_each_waiting_bot_from_it(
    site: Site, alice: Person, bob: Person, client: Person
) -> None:
    assert client("GET", PATH).json["bots_waiting"] == 0
    make_bot(site.conn, bob.id, name="secret")
    large = Manifest("alice", ("p",), resources=Resources(memory_mb=10**6)).text()
    make_bot(site.conn, alice.id, manifest=large)
    make_bot(site.conn, alice.id, policy="JobRequirements = false")
    make_bot(site.conn, alice.id, state="done")
    assert told(client) == {"trust": 1, "memory": 1, "requirements": 1}
    answer = client("GET", PATH)
    assert answer.json["bots_waiting"] == 3
    assert b"secret" not in answer.data
    assert b"bob" not in answer.data


def test_concurrency_counts_what_the_client_holds(
    site: Site, alice: Person, client: Person
) -> None:
    bot = make_bot(site.conn, alice.id, jobs=5, policy="Concurrency = 1")
    assert told(client) == {"free": 1}
    make_lease(site.conn, ReplicaId(bot, 0, 1), client.id)
    assert told(client) == {"concurrency": 1}


def test_who_waits_for_checks_of_answers_is_told_so(
    site: Site, bob: Person, client: Person
) -> None:
    bot = make_bot(site.conn, bob.id, signature=bytes(64), jobs=20)
    assert told(client) == {"free": 1}
    site.conn.execute(
        "INSERT INTO unjudged (bot, seq, replica, host, crew)"
        " SELECT %s, n, 1, host.id, 'crew' FROM host, generate_series(1, 8) AS n",
        [bot],
    )
    assert told(client) == {"width": 1}


def test_what_the_machine_earned_is_told(site: Site, client: Person) -> None:
    site.conn.execute("UPDATE host SET jobs_today = 7, jobs_day = current_date")
    found = client("GET", PATH).json
    assert (found["jobs_today"], found["credit"]) == (7, 0)


def test_a_client_that_asks_without_end_is_put_off(client: Person) -> None:
    codes = [client("GET", PATH).status_code for _ in range(12)]
    assert codes[:10] == [200] * 10
    assert codes[-1] == 503
