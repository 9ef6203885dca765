"""Invitations through the API: for whom, for how many machines, for how long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.factories import HOST
from tests.http.conftest import Answer, Person, Site

from gridbot_client.protocol.signatures import fingerprint


def invite(person: Person, **body: Any) -> Answer:
    return person("POST", "/api/v1/invitations", json=body)


def joins(person: Person, invitation: Any, machine: str) -> Answer:
    holder = replace(person, token=invitation["token"])
    return holder("POST", "/api/v1/clients", json={"host": HOST, "mac": machine})


def expire(site: Site, invitation: Any) -> None:
    site.conn.execute(
        "UPDATE token SET expires_at = now() - interval '1 s' WHERE id = %s", [invitation["id"]]
    )


def test_a_person_invites_machines_for_themselves_only(
    site: Site, alice: Person, bob: Person, operator: Person
) -> None:
    answer = invite(alice)
    assert answer.status_code == 201
    assert (answer.json["owner"], answer.json["uses"]) == ("alice", 1)
    assert joins(alice, answer.json, "m1").json["owner"] == "alice"
    refused = invite(alice, owner="bob")
    assert refused.status_code == 403
    assert refused.json["detail"] == "only an operator can invite machines for bob"
    assert joins(operator, invite(operator, owner="bob").json, "m2").json["owner"] == "bob"
    unknown = invite(operator, owner="nobody")
    assert unknown.status_code == 400
    assert "there is no user nobody" in unknown.json["detail"]
    assert site.key_of(bob, "join")("POST", "/api/v1/invitations", json={}).status_code == 403


def test_an_operator_learns_whose_signatures_an_invited_machine_will_trust(
    site: Site, bob: Person, operator: Person
) -> None:
    public = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    body = {"key": public.hex(), "label": "laptop"}
    assert bob("POST", "/api/v1/signing/keys", json=body).status_code == 200
    assert invite(operator, owner="bob").json["owner_keys"] == [fingerprint(public)]


def test_an_invitation_is_used_up_by_machines_and_not_by_joining_again(
    site: Site, alice: Person
) -> None:
    invitation = invite(alice, uses=2).json
    for machine in ("m1", "m1", "m2", "m1"):
        assert joins(alice, invitation, machine).status_code == 201
    refused = joins(alice, invitation, "m3")
    assert refused.status_code == 403
    assert "was for 2 machines, which have joined; ask for another" in refused.json["detail"]
    [listed] = [
        item for item in alice("GET", "/api/v1/tokens").json["tokens"]
        if item["id"] == invitation["id"]
    ]  # fmt: skip
    assert (listed["uses"], listed["machines"]) == (2, 2)


def test_an_expired_invitation_serves_only_machines_that_have_joined(
    site: Site, alice: Person
) -> None:
    invitation = invite(alice, uses=5).json
    assert joins(alice, invitation, "m1").status_code == 201
    expire(site, invitation)
    assert joins(alice, invitation, "m1").status_code == 201
    refused = joins(alice, invitation, "m2")
    assert refused.status_code == 403
    assert refused.json["detail"] == "this invitation has expired; ask for another"
    holder = replace(alice, token=invitation["token"])
    assert holder("GET", "/api/v1/volunteer").status_code == 401
    assert holder("GET", "/files/" + "0" * 64).status_code == 401


def test_a_revoked_invitation_serves_nobody(site: Site, alice: Person) -> None:
    invitation = invite(alice, uses=5).json
    assert joins(alice, invitation, "m1").status_code == 201
    assert alice("DELETE", f"/api/v1/tokens/{invitation['id']}").status_code == 200
    assert joins(alice, invitation, "m1").status_code == 401


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"uses": 0}, "uses"),
        ({"uses": 10_001}, "uses"),
        ({"expires_seconds": 0}, "expires_seconds"),
        ({"expires_seconds": 1e9}, "expires_seconds"),
        ({"label": "two\nlines"}, "label"),
        ({"owner": 7}, "owner"),
    ],
)
def test_an_invitation_without_bounds_is_refused(
    alice: Person, body: dict[str, Any], named: str
) -> None:
    refused = invite(alice, **body)
    assert refused.status_code == 400
    assert named in refused.json["detail"]
