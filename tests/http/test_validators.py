"""Validators as they are submitted."""

import hashlib
from pathlib import Path

import pytest
from tests.factories import submission
from tests.http.conftest import Person, Site
from tests.http.loopback import serve
from tests.http.test_gridbot_command import refused, runner

PROGRAM = b"#!/bin/sh\nexit 0\n"
FILE = {
    "name": "compare",
    "sha256": hashlib.sha256(PROGRAM).hexdigest(),
    "size": len(PROGRAM),
    "executable": True,
}


def upload(person: Person) -> None:
    url = f"/api/v1/blobs/{FILE['sha256']}?size={FILE['size']}&offset=0"
    assert person("PUT", url, data=PROGRAM).status_code in (200, 201)


def test_a_program_that_compares_needs_an_operators_leave(
    site: Site, alice: Person, operator: Person
) -> None:
    upload(alice)
    body = submission(quorum=2, validator="command:./compare -x", comparison=FILE)
    refused = alice("POST", "/api/v1/bots", json=body)
    assert refused.status_code == 400
    assert "ask an operator for: gridbot user comparisons alice --allow" in refused.json["detail"]
    path = "/api/v1/owners/alice"
    assert alice("PATCH", path, json={"may_compare": True}).status_code == 403
    assert operator("PATCH", path, json={"may_compare": True}).json["may_compare"] is True
    made = alice("POST", "/api/v1/bots", json=body)
    assert made.status_code == 201
    row = site.conn.execute("SELECT validator, compare_with FROM bot").fetchone()
    assert row == ("command:./compare -x", bytes.fromhex(str(FILE["sha256"])))
    assert operator("PATCH", path, json={"may_compare": False}).json["may_compare"] is False
    again = alice("POST", "/api/v1/bots", json={**body, "submit_key": "another"})
    assert again.status_code == 400


def test_a_program_that_compares_is_ones_own_file(
    site: Site, alice: Person, bob: Person, operator: Person
) -> None:
    operator("PATCH", "/api/v1/owners/alice", json={"may_compare": True})
    upload(bob)
    body = submission(quorum=2, validator="command:./compare", comparison=FILE)
    answer = alice("POST", "/api/v1/bots", json=body)
    assert answer.json["missing"] == [FILE["sha256"]]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"validator": "command:./compare"}, "the program ./compare is not named by its hash"),
        ({"validator": "exact", "comparison": FILE}, "only the validator command:./compare runs"),
        ({"validator": "text:x=1"}, "validator text has no options, got 'x=1'"),
        ({"validator": "json:ignore=x"}, "ignore=x is no path"),
    ],
)
def test_a_wrong_validator_is_told_at_submission(
    alice: Person, fields: dict[str, object], said: str
) -> None:
    answer = alice("POST", "/api/v1/bots", json=submission(**fields))
    assert answer.status_code == 400
    assert said in answer.json["detail"]


def test_nobody_changes_a_user_that_is_not_there(operator: Person) -> None:
    answer = operator("PATCH", "/api/v1/owners/nobody", json={"may_compare": True})
    assert answer.status_code == 404


def test_the_command_sends_the_program_that_compares(
    site: Site, alice: Person, operator: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "compare").write_bytes(PROGRAM)
    asked = ("submit", "--validator", "command:./compare -x", "--quorum", "2", "--", "echo")
    with serve(site.app) as url:
        run, ask = runner(url, alice, tmp_path), runner(url, operator, tmp_path)
        assert "gridbot user comparisons alice --allow" in refused(run(*asked))
        allowed = ask("user", "comparisons", "alice", "--allow")
        assert allowed.output == "alice may run comparisons on the server\n"
        assert run(*asked).exit_code == 0
        assert "nothing" in refused(run("submit", "--validator", "command:./nothing", "--", "echo"))
    row = site.conn.execute("SELECT validator, compare_with FROM bot").fetchone()
    assert row == ("command:./compare -x", bytes.fromhex(str(FILE["sha256"])))
