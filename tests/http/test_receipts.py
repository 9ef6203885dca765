"""Receipts: a client joins again a server that was restored, and nobody else does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.factories import HOST
from tests.http.conftest import Answer, Person, Site

from gridbot_server.storage import store_record


def join(person: Person, machine: str = "m1", **body: Any) -> Answer:
    return person("POST", "/api/v1/clients", json={"host": HOST, "mac": machine, **body})


def again(person: Person, receipt: str) -> Answer:
    body = {"host": HOST, "receipt": receipt}
    return replace(person, token="unknown")("POST", "/api/v1/clients/again", json=body)


def work(person: Person, token: str) -> int:
    return replace(person, token=token)("GET", "/api/v1/clients/self/standing").status_code


@pytest.fixture
def volunteers(site: Site, alice: Person) -> Person:
    """A key of alice's that only joins."""
    return site.key_of(alice, "join")


def lose(site: Site, *statements: str) -> None:
    """Put the database back, as a restore of an older backup does."""
    for statement in ("UPDATE client SET revoked_at = NULL", "DELETE FROM client", *statements):
        site.conn.execute(statement.encode())
    store_record.accept(site.conn, site.settings.open_store())


def test_a_client_that_a_restored_server_does_not_know_joins_again(
    site: Site, volunteers: Person
) -> None:
    first = join(volunteers).json
    lose(site, "DELETE FROM token", "DELETE FROM host")
    assert work(volunteers, first["token"]) == 401
    found = again(volunteers, first["receipt"])
    assert found.status_code == 201
    assert found.json["owner"] == "alice"
    assert found.json["epoch"] > first["epoch"]
    assert work(volunteers, found.json["token"]) == 200
    lose(site)
    assert again(volunteers, found.json["receipt"]).status_code == 201


def test_a_repeated_return_is_one_client_with_another_token(site: Site, volunteers: Person) -> None:
    first = join(volunteers).json
    lose(site)
    lost, found = (again(volunteers, first["receipt"]).json for _ in range(2))
    assert lost["client"] == found["client"]
    assert work(volunteers, lost["token"]) == 401
    assert work(volunteers, found["token"]) == 200


def test_no_receipt_counts_in_the_epoch_that_issued_it(site: Site, volunteers: Person) -> None:
    first = join(volunteers).json
    refused = again(volunteers, first["receipt"])
    assert refused.status_code == 403
    assert "for servers that were restored since" in refused.json["detail"]


def test_forged_receipts_are_refused(site: Site, volunteers: Person) -> None:
    receipt = join(volunteers).json["receipt"]
    lose(site)
    flipped = [
        receipt[:at] + chr(ord(receipt[at]) ^ 1) + receipt[at + 1 :] for at in range(len(receipt))
    ]
    for forged in (*flipped, "", ".", receipt.partition(".")[0], receipt + "=", "é.é", "\0"):
        assert again(volunteers, forged).status_code in (400, 403), forged
    assert again(volunteers, receipt).status_code == 201


def test_what_was_withdrawn_before_the_loss_does_not_come_back(
    site: Site, alice: Person, operator: Person, volunteers: Person
) -> None:
    revoked, banned = join(volunteers, "m1").json, join(site.key_of(alice, "join"), "m2").json
    hosts = operator("GET", "/api/v1/hosts").json["hosts"]
    [host] = [item["id"] for item in hosts if item["id"] == max(h["id"] for h in hosts)]
    assert operator("PUT", f"/api/v1/hosts/{host}/ban", json={"why": "it lied"}).status_code == 200
    site.conn.execute("UPDATE client SET revoked_at = now() WHERE id = %s", [revoked["client"]])
    store_record.keep(site.conn, site.settings.open_store())
    lose(site, "DELETE FROM host")
    assert again(volunteers, revoked["receipt"]).status_code == 403
    assert again(volunteers, banned["receipt"]).status_code == 403
    refused = join(volunteers, "m2")  # nor with a key
    assert (refused.status_code, "it lied" in refused.json["detail"]) == (403, True)


def test_a_client_revoked_after_it_came_back_stays_out(site: Site, volunteers: Person) -> None:
    receipt = join(volunteers).json["receipt"]
    lose(site)
    client = again(volunteers, receipt).json["client"]
    site.conn.execute("UPDATE client SET revoked_at = now() WHERE id = %s", [client])
    assert again(volunteers, receipt).status_code == 403


def test_a_receipt_of_a_revoked_key_or_a_lost_owner_is_refused(
    site: Site, volunteers: Person
) -> None:
    receipt = join(volunteers).json["receipt"]
    lose(site)
    site.conn.execute("UPDATE token SET revoked_at = now()")
    assert again(volunteers, receipt).status_code == 403
    lose(site, "DELETE FROM token")
    site.conn.execute("UPDATE owner SET name = 'other' WHERE name = 'alice'")
    refused = again(volunteers, receipt)
    assert refused.status_code == 403
    assert "has no owner alice: ask its operator" in refused.json["detail"]


def test_a_pilot_gets_no_receipt(site: Site, alice: Person) -> None:
    pilots = {"grid": "g", "serves": [alice.id], "tag": "t", "pilots": 1}
    holder = site.key_of(alice, "pilot", **pilots, expires_at="tomorrow")
    answer = join(holder, pilot="t.0")
    assert answer.status_code == 201, answer.json
    assert answer.json["receipt"] == ""
