"""Who changed what."""

from typing import Any

import pytest
from tests.factories import make_bot
from tests.http.conftest import Person, Site

from gridbot_server.http import audit


def entries(person: Person, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = person("GET", f"/api/v1/audit{query}").json["entries"]
    return found


def test_a_change_is_noted_with_who_made_it_and_what_was_asked_for(
    site: Site, alice: Person, bob: Person, operator: Person
) -> None:
    bot = make_bot(site.conn, alice.id)
    path = f"/api/v1/bots/{bot}"
    assert alice("PATCH", path, json={"policy": "Rank = 7"}).status_code == 200
    assert operator("POST", f"{path}/cancel").status_code == 200
    cancel, change = entries(operator)
    assert (change["owner"], change["action"], change["target"]) == ("alice", "change_bot", path)
    assert change["given"] == {"policy": "Rank = 7"}
    assert (cancel["owner"], cancel["action"]) == ("root", "cancel_bot")
    assert entries(alice) == [change]
    assert entries(bob) == []
    assert entries(operator, f"?target={path}") == [cancel, change]
    assert entries(operator, "?target=/api/v1/bots/99") == []
    assert entries(operator, f"?before={cancel['id']}") == [change]


def test_what_changes_nothing_is_not_noted(site: Site, alice: Person, bob: Person) -> None:
    bot = make_bot(site.conn, alice.id)
    bob("POST", f"/api/v1/bots/{bot}/cancel")
    alice("PATCH", f"/api/v1/bots/{bot}", json={"policy": "Rank = ("})
    alice("GET", f"/api/v1/bots/{bot}")
    assert entries(alice) == entries(bob) == []


def test_that_a_machine_joins_is_not_noted(alice: Person) -> None:
    joined = alice("POST", "/api/v1/clients", json={"host": {}, "mac": "aa:bb"})
    assert joined.status_code == 201
    assert entries(alice) == []


def test_a_change_that_cannot_be_noted_is_acknowledged_and_told_to_the_log(
    site: Site, alice: Person, caplog: pytest.LogCaptureFixture
) -> None:
    bot = make_bot(site.conn, alice.id)
    site.conn.execute("ALTER TABLE audit RENAME TO away")
    assert alice("POST", f"/api/v1/bots/{bot}/cancel").status_code == 200
    assert "cancel_bot by key" in caplog.text
    assert "is not noted" in caplog.text


def test_no_secret_and_no_table_is_noted() -> None:
    document = {"password": "x", "owner_key": "y", "jobs": [{"i": 1}], "name": "scan", "hold": True}
    assert audit.given(document) == {"name": "scan", "hold": True}
    assert audit.given({"policy": "x" * 20_000, "jobs": [1, 2]}) == {"jobs": [1, 2]}
    assert audit.given(["a"]) == {}
