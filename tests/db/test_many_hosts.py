"""What pages ask of a database with very many hosts: it looks at a bounded number of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.factories import make_bot, make_client, make_host, make_owner

from gridbot_server.api.matching import SQL as BOTS
from gridbot_server.api.matching import clients_seen, percent_sought
from gridbot_server.api.operation import SQL as OPERATION
from gridbot_server.api.operation import latest_hosts
from gridbot_server.history import curves
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode

MANY = 12_000
_ADD = """
WITH hosts AS (
    INSERT INTO host (identity, owner, ad)
    SELECT 'many:' || n, %(owner)s, '{}' FROM generate_series(1, %(many)s) AS n RETURNING id
)
INSERT INTO client (hash, host, owner, protocol, seen_at)
SELECT sha256(id::text::bytea), id, %(owner)s, 2, now() - id * %(apart)s::interval FROM hosts
"""


@pytest.fixture
def owner(conn: Connection) -> int:
    return make_owner(conn, "ada")


def add_hosts(conn: Connection, owner: int, apart: str) -> None:
    """Add many hosts, each of which was heard of for the last time so much before the last one."""
    conn.execute(_ADD, {"owner": owner, "many": MANY, "apart": apart})
    conn.execute("ANALYZE host, client")


def steps(conn: Connection, query: bytes, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The steps that the database took to answer a query."""
    explained = conn.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + query, values).fetchone()
    assert explained is not None
    found = [explained[0][0]["Plan"]]
    while found:
        step = found.pop()
        found += step.get("Plans", [])
        yield step


def looked_at(conn: Connection, query: bytes, values: Mapping[str, Any], table: str) -> int:
    """How many rows of a table were looked at to answer a query."""
    return sum(
        int(step["Actual Loops"] * (step["Actual Rows"] + step.get("Rows Removed by Filter", 0)))
        for step in steps(conn, query, values)
        if step.get("Relation Name") == table
    )


def column(conn: Connection, query: str) -> list[Any]:
    return [value for (value,) in conn.execute(query).fetchall()]


def test_of_few_clients_those_are_found_that_asked_last(conn: Connection, owner: int) -> None:
    clients = [make_client(conn, owner)[0] for _ in range(6)]
    conn.execute("UPDATE client SET seen_at = now() - id * interval '1 minute'")
    conn.execute("UPDATE client SET revoked_at = now() WHERE id = %s", [clients[0]])
    conn.execute("UPDATE client SET expires_at = now() WHERE id = %s", [clients[1]])
    conn.execute(
        "UPDATE client SET seen_at = now() - interval '25 hours' WHERE id = %s", clients[5:]
    )
    assert clients_seen(conn, 10) == clients[2:5]
    assert clients_seen(conn, 2) == clients[2:4]


@pytest.mark.parametrize("known", [-1.0, 0.0, 100.0, 5e3, 2e4, 1e5, 1e6, 1e8])
@pytest.mark.parametrize("most", [1, 200, 2000])
def test_among_how_many_clients_the_last_are_sought_does_not_grow(known: float, most: int) -> None:
    percent = percent_sought(known, most)
    bound = max(5000, 10 * most)
    if known <= bound:
        assert percent == 100
    else:
        assert known * percent / 100 == pytest.approx(bound)


def test_a_part_of_very_many_clients_is_looked_at_always_the_same(
    conn: Connection, owner: int
) -> None:
    add_hosts(conn, owner, "1 second")
    values = {"percent": 10, "most": 200}
    assert 0 < looked_at(conn, BOTS["clients_seen"], values, "client") < MANY / 4
    found = clients_seen(conn, 200)
    assert len(found) == 200
    assert found == clients_seen(conn, 200) == sorted(found)


def test_few_that_still_ask_are_found_among_very_many_that_are_gone(
    conn: Connection, owner: int
) -> None:
    add_hosts(conn, owner, "1 day")
    asking = {make_client(conn, owner)[0] for _ in range(20)}
    assert set(clients_seen(conn, 200)) == asking


def test_the_latest_of_many_hosts_are_found_without_a_look_at_each(
    conn: Connection, owner: int
) -> None:
    add_hosts(conn, owner, "1 second")
    make_client(conn, make_owner(conn, "bob"))
    busy = make_host(conn, owner)
    for _ in range(20):  # a machine that began anew again and again
        make_client(conn, owner, busy)
    values = {"mine": owner, "limit": 50}
    expected = [host for (host,) in conn.execute(OPERATION["latest_hosts"], values).fetchall()]
    assert latest_hosts(conn, owner, 50) == expected
    assert expected[0] == busy
    limits = {**values, "clients": 200}
    assert looked_at(conn, OPERATION["latest_of_many"], limits, "host") <= 200


def test_hosts_without_clients_come_last(conn: Connection, owner: int) -> None:
    add_hosts(conn, owner, "1 second")
    conn.execute("UPDATE client SET revoked_at = now() WHERE host % 1000 <> 0")
    found = latest_hosts(conn, owner, 50)
    assert len(found) == 50
    alive = column(conn, "SELECT host FROM client WHERE revoked_at IS NULL ORDER BY seen_at DESC")
    assert found[: len(alive)] == alive


def test_pieces_of_a_long_history_are_found_by_their_index(conn: Connection, owner: int) -> None:
    bot = make_bot(conn, owner)
    conn.execute(
        "INSERT INTO bot_history (bot, step, at, grid, done)"
        " SELECT %s, 60, 'epoch'::timestamptz + n * interval '1 minute', '', 1"
        " FROM generate_series(1, 10000) AS n",
        [bot],
    )
    conn.execute("ANALYZE bot_history")
    pieces = encode([{"step": 60, "begin": 60 * 5000, "end": 60 * 5030}])
    values = {"bot": bot, "step": 60, "pieces": pieces}
    for name in ("bot", "finished_since"):
        assert looked_at(conn, curves.SQL[name], values, "bot_history") == 30
    assert conn.execute(curves.SQL["finished_since"], values).fetchone() == (30,)
