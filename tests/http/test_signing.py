"""Keys that sign BOTs, signatures that come after a submission, revocations, the project's keys."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.factories import signed, submission
from tests.http.conftest import Answer, Person, Site
from tests.http.loopback import serve
from tests.http.test_explanation import add_host
from tests.http.test_operation import JOIN

from gridbot.cli import gridbot
from gridbot_client.protocol import job_table
from gridbot_client.protocol.messages import Manifest, manifest_id, read_revocations
from gridbot_client.protocol.signatures import (
    fingerprint,
    introduction,
    manifest_statement,
    revocation,
)
from gridbot_server.signing import keys
from gridbot_server.web.app import create_app

ITEMS: dict[str, Any] = {
    "command": ["echo", "{x}"],
    "placeholders": {"x": "int"},
    "jobs": {"items": [{"x": n} for n in range(70)]},
}


@dataclass(frozen=True)
class Pair:
    """A key pair."""

    private: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def raw(self) -> bytes:
        return self.private.public_key().public_bytes_raw()

    @property
    def hex(self) -> str:
        return self.raw.hex()

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.raw)

    def sign(self, statement: bytes) -> str:
        return base64.b64encode(self.private.sign(statement)).decode()

    def introduce(self, newer: Pair) -> dict[str, str]:
        word = self.sign(introduction(self.raw, newer.raw))
        return {"key": newer.hex, "introduced_by": self.hex, "signature": word}

    def revoke(self, subject: str) -> dict[str, str]:
        return {"subject": subject, "signer": self.hex, "signature": self.sign(revocation(subject))}


def project(site: Site) -> Pair:
    return Pair(keys.load_private(site.settings.project_key_path))


def has_key(person: Person) -> Pair:
    pair = Pair()
    assert known(person, {"key": pair.hex}).status_code == 200
    return pair


def known(person: Person, body: dict[str, str]) -> Answer:
    return person("POST", "/api/v1/signing/keys", json={"label": "laptop", **body})


def revokes(person: Person, by: Pair, subject: str) -> Answer:
    return person("POST", "/api/v1/signing/revocations", json=by.revoke(subject))


def submit(person: Person, **changes: Any) -> int:
    """Submit without a signature."""
    answer = person("POST", "/api/v1/bots", json=submission(**changes))
    assert answer.status_code == 201, answer.json
    number: int = answer.json["id"]
    return number


def sign(person: Person, bot: int, pair: Pair, *, with_parts: bool = True) -> Answer:
    """Sign a BOT as `gridbot app sign` does."""
    text = person("GET", f"/api/v1/bots/{bot}/manifest").json["text"]
    id = manifest_id(text)
    parts = [
        pair.sign(job_table.statement(id, part["first"], part["size"], bytes.fromhex(part["root"])))
        for part in person("GET", f"/api/v1/bots/{bot}/parts").json["parts"]
    ]
    body = {"signature": pair.sign(manifest_statement(text)), "parts": parts if with_parts else []}
    return person("PUT", f"/api/v1/bots/{bot}/signature", json=body)


def waits(site: Site, bot: int) -> bool:
    query = "SELECT waits_for_signature FROM bot WHERE id = %s"
    row = site.conn.execute(query, [bot]).fetchone()
    assert row is not None
    return bool(row[0])


def told(site: Site, client: Person) -> set[str]:
    """Subjects of the revocations that clients are told, each of which they take as genuine."""
    found = read_revocations(client("GET", "/api/v1/clients/self/revocations").json)
    assert all(item.is_valid() for item in found)
    return {item.subject for item in found}


# ------------------------------------------------------------------------------- owners' keys


def test_the_first_key_needs_nobodys_word_and_each_other_that_of_an_older_one(
    alice: Person,
) -> None:
    first, second, third = has_key(alice), Pair(), Pair()
    answer = known(alice, {"key": second.hex})
    assert answer.status_code == 409
    assert f"gridbot key add {second.hex}" in answer.json["detail"]
    assert known(alice, first.introduce(second)).status_code == 200
    answer = known(alice, second.introduce(third))
    listed = {key["key"]: key["introduced_by"] for key in answer.json["keys"]}
    assert listed == {first.hex: None, second.hex: first.hex, third.hex: second.hex}
    assert known(alice, second.introduce(third)).json == answer.json  # repeated


def test_a_word_that_the_older_key_did_not_give_is_refused(alice: Person, bob: Person) -> None:
    older, bobs, newer = has_key(alice), has_key(bob), Pair()
    forged = {**older.introduce(newer), "signature": bobs.introduce(newer)["signature"]}
    assert "not the older key's word" in known(alice, forged).json["detail"]
    assert "not a signing key of this owner" in known(alice, bobs.introduce(newer)).json["detail"]
    revokes(alice, older, older.fingerprint)
    by_revoked = known(alice, older.introduce(newer))
    assert "not a signing key of this owner" in by_revoked.json["detail"]


def test_an_owner_whose_keys_are_all_revoked_begins_with_a_new_one(alice: Person) -> None:
    old, new = has_key(alice), Pair()
    revokes(alice, old, old.fingerprint)
    answer = known(alice, {"key": new.hex})
    states = {key["key"]: key["is_revoked"] for key in answer.json["keys"]}
    assert states == {old.hex: True, new.hex: False}


# ------------------------------------------------------------- signatures after the submission


def test_an_unsigned_bot_waits_until_its_owner_has_signed_it_with_all_its_jobs(
    site: Site, alice: Person
) -> None:
    key = has_key(alice)
    bot = submit(alice, **ITEMS)
    assert waits(site, bot)
    assert "0 signatures for 2 parts" in sign(alice, bot, key, with_parts=False).json["detail"]
    assert waits(site, bot)
    assert sign(alice, bot, key).status_code == 200
    assert not waits(site, bot)


def test_the_projects_signature_does_not_stand_for_the_owners_over_the_jobs(
    site: Site, alice: Person
) -> None:
    key, projects = has_key(alice), project(site)
    bot, numbers = submit(alice, **ITEMS), submit(alice)
    answer = sign(alice, bot, projects, with_parts=False)
    assert answer.status_code == 409
    assert f"so its owner signs first: gridbot app sign {bot}" in answer.json["detail"]
    assert sign(alice, bot, projects).status_code == 400  # nor does it sign the jobs
    assert waits(site, bot)
    assert sign(alice, bot, key).status_code == 200
    assert sign(alice, bot, projects, with_parts=False).status_code == 200
    # The rule of a range is in the manifest: no job of it needs a signature.
    assert sign(alice, numbers, projects).status_code == 200
    assert not waits(site, numbers)


def test_jobs_of_an_owner_without_a_key_are_signed_by_the_project(
    site: Site, alice: Person
) -> None:
    bot = submit(alice, **ITEMS)
    assert sign(alice, bot, project(site)).status_code == 200
    assert not waits(site, bot)


def test_a_signature_on_one_bot_is_none_on_another_of_the_same_command(
    site: Site, alice: Person
) -> None:
    key, projects = has_key(alice), project(site)
    first, second = submit(alice), submit(alice)
    for pair in (key, projects):
        assert sign(alice, first, pair).status_code == 200
    text = alice("GET", f"/api/v1/bots/{first}/manifest").json["text"]
    for pair in (key, projects):
        body = {"signature": pair.sign(manifest_statement(text)), "parts": []}
        answer = alice("PUT", f"/api/v1/bots/{second}/signature", json=body)
        assert answer.status_code == 400
        assert "key's nor the owner key's over this BOT's manifest" in answer.json["detail"]
    assert waits(site, second)
    add_host(site, alice, "alpha")
    explained = alice("GET", f"/api/v1/bots/{second}/explanation").json
    assert f"the BOT waits for a signature: gridbot app sign {second}" in explained["verdict"]


@pytest.mark.parametrize("what", ["key", "bot"])
def test_what_was_revoked_is_not_signed_again(site: Site, alice: Person, what: str) -> None:
    key = has_key(alice)
    bot = submit(alice, **ITEMS)
    text = alice("GET", f"/api/v1/bots/{bot}/manifest").json["text"]
    assert Manifest.from_text(text).owner_key == key.hex
    subject = key.fingerprint if what == "key" else manifest_id(text)
    revokes(alice, key, subject)
    for pair in (key, project(site)):
        answer = sign(alice, bot, pair, with_parts=pair is key)
        assert answer.status_code == 409
        assert "was revoked: submit it again" in answer.json["detail"]
    assert waits(site, bot)


@pytest.mark.parametrize(
    ("sealed", "why"),
    [
        ({"not_before": 2**40 - 1}, "is the clock of the machine that signed right?"),
        ({"expires": 1}, "is in the past"),
        ({"project": "0" * 64}, "is not this project"),
    ],
)
def test_an_envelope_that_no_client_would_take_is_refused(
    site: Site, alice: Person, sealed: dict[str, Any], why: str
) -> None:
    body = signed(site.conn, alice.id, submission(), **sealed)
    answer = alice("POST", "/api/v1/bots", json=body)
    assert answer.status_code == 400
    assert answer.json["error"] == "InvalidEnvelope"
    assert answer.json["detail"].startswith(f"envelope.{min(sealed)}: ")
    assert why in answer.json["detail"]


@pytest.mark.parametrize("jobs", [{"range": [0, 10]}, {"stream": True}])
def test_signatures_over_jobs_that_do_not_come_along_are_refused(
    site: Site, alice: Person, jobs: dict[str, Any]
) -> None:
    body = signed(site.conn, alice.id, submission(command=["echo"], jobs=jobs))
    extra = {"parts": [base64.b64encode(bytes(64)).decode()]}
    answer = alice("POST", "/api/v1/bots", json={**body, **extra})
    assert (answer.status_code, answer.json["detail"][:6]) == (400, "parts:")
    assert alice("POST", "/api/v1/bots", json=body).status_code == 201


# -------------------------------------------------------------------------------- revocations


def test_a_revoked_key_stops_its_bots_and_clients_are_told(site: Site, alice: Person) -> None:
    key = has_key(alice)
    client = site.client_of(alice)
    bot, other = submit(alice, **ITEMS), submit(alice)
    sign(alice, bot, key)
    assert revokes(alice, key, key.fingerprint).json == {"bots": [bot, other]}
    assert waits(site, bot)
    assert told(site, client) == {key.fingerprint}
    refused = sign(alice, bot, key)
    assert refused.status_code == 409


def test_nobody_revokes_what_is_anothers(site: Site, alice: Person, bob: Person) -> None:
    alices, bobs = has_key(alice), has_key(bob)
    bot = submit(alice)
    id = alice("GET", f"/api/v1/bots/{bot}/manifest").json["id"]
    for subject in (alices.fingerprint, id, project(site).fingerprint):
        assert revokes(bob, bobs, subject).status_code == 403
    assert revokes(bob, alices, alices.fingerprint).status_code == 403  # needs alice's token, too
    forged = {**alices.revoke(id), "signature": bobs.revoke(id)["signature"]}
    answer = alice("POST", "/api/v1/signing/revocations", json=forged)
    assert "not the signer's" in answer.json["detail"]
    assert told(site, site.client_of(bob)) == set()


def test_the_projects_key_revokes_anything_and_clients_hear_of_it_first(
    site: Site, alice: Person, operator: Person
) -> None:
    key = has_key(alice)
    assert revokes(operator, project(site), key.fingerprint).status_code == 200
    fresh = has_key(alice)
    bot = submit(alice)
    id = alice("GET", f"/api/v1/bots/{bot}/manifest").json["id"]
    assert revokes(alice, fresh, id).status_code == 200
    client = site.client_of(alice)
    found = read_revocations(client("GET", "/api/v1/clients/self/revocations").json)
    assert [item.subject for item in found] == [key.fingerprint, id]


def test_one_owner_cannot_fill_the_list_of_revocations(
    site: Site, alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridbot_server.bots.signing.MOST_REVOCATIONS", 2)
    key = has_key(alice)
    ids = [alice("GET", f"/api/v1/bots/{submit(alice)}/manifest").json["id"] for _ in range(3)]
    assert [revokes(alice, key, id).status_code for id in ids] == [200, 200, 409]
    assert told(site, site.client_of(alice)) == set(ids[:2])


# -------------------------------------------------------------------------- the project's keys


@pytest.fixture
def next_key(site: Site, tmp_path: Path) -> Path:
    path = tmp_path / "next.key"
    keys.create(path)
    return path


def replace_key(operator: Person, old: Pair, new: Pair) -> Answer:
    word = old.sign(introduction(old.raw, new.raw))
    json = {"key": new.hex, "signature": word}
    return operator("PUT", "/api/v1/signing/project-key", json=json)


def test_the_present_project_key_alone_introduces_the_next_one(
    site: Site, alice: Person, operator: Person
) -> None:
    old, new, eve = project(site), Pair(), Pair()
    forged = {"key": new.hex, "signature": eve.sign(introduction(old.raw, new.raw))}
    answer = operator("PUT", "/api/v1/signing/project-key", json=forged)
    assert "not the present project key's word" in answer.json["detail"]
    assert alice("PUT", "/api/v1/signing/project-key", json=forged).status_code == 403
    assert replace_key(operator, old, new).status_code == 200
    shown = alice("GET", "/api/v1/signing").json
    assert (shown["project"], shown["project_key"]) == (old.fingerprint, new.hex)
    assert replace_key(operator, old, new).status_code == 200  # repeated
    assert replace_key(operator, old, Pair()).status_code == 400  # the old one has had its say
    assert replace_key(operator, new, old).status_code == 409


def test_what_the_earlier_project_key_signed_waits_for_the_next_ones_signature(
    site: Site, alice: Person, operator: Person
) -> None:
    old, new = project(site), Pair()
    by_project = submit(alice)
    sign(alice, by_project, old)
    key = has_key(alice)
    by_both, untouched = submit(alice, **ITEMS), submit(alice, **ITEMS)
    sign(alice, by_both, key)
    sign(alice, by_both, old, with_parts=False)
    sign(alice, untouched, key)
    assert replace_key(operator, old, new).json == {"unsigned": [by_project, by_both]}
    # A lost answer is asked for again.
    assert replace_key(operator, old, new).json == {"unsigned": [by_project, by_both]}
    assert [waits(site, bot) for bot in (by_project, by_both, untouched)] == [True, False, False]
    assert sign(operator, by_project, old).status_code == 400
    assert sign(operator, by_project, new).status_code == 200
    assert not waits(site, by_project)
    assert replace_key(operator, old, new).json == {"unsigned": [by_both]}


def test_a_server_that_signs_needs_the_present_key_to_do_it(site: Site, operator: Person) -> None:
    app = create_app(replace(site.settings, sign_on_submit=True))
    person = replace(operator, app=app)
    assert not waits(site, submit(person))
    for asked, is_told in ((operator, False), (person, True)):
        joined = asked("POST", "/api/v1/clients", json=JOIN).json
        assert joined["signs_at_submission"] is is_told
    replace_key(operator, project(site), Pair())
    assert waits(site, submit(person))
    app.extensions["gridbot"].close()


def test_the_command_replaces_the_projects_key_and_signs_what_is_unfinished(
    site: Site, operator: Person, alice: Person, next_key: Path
) -> None:
    bot = submit(alice, **ITEMS)
    sign(alice, bot, project(site))
    with serve(site.app) as url:
        environment = {"GRIDBOT_SERVER": url, "GRIDBOT_KEY": operator.token}
        runner = CliRunner(env=environment)
        old = str(site.settings.project_key_path)
        arguments = ["app", "rotate", "--yes", "--project-key", old, "--new-key", str(next_key)]
        found = runner.invoke(gridbot, arguments)
    assert found.exit_code == 0, found.output
    assert f"bot {bot}: signed\n" in found.stdout
    assert not waits(site, bot)
    row = site.conn.execute("SELECT signed_with FROM bot WHERE id = %s", [bot]).fetchone()
    assert row == (keys.public_bytes(next_key),)


def test_the_command_revokes_with_the_projects_key(
    site: Site, operator: Person, alice: Person
) -> None:
    leaked = has_key(alice)
    bot = submit(alice)
    sign(alice, bot, leaked)
    by = str(site.settings.project_key_path)
    with serve(site.app) as url:
        runner = CliRunner(env={"GRIDBOT_SERVER": url, "GRIDBOT_KEY": operator.token})
        arguments = ["key", "revoke", leaked.fingerprint, "--by", by]
        assert runner.invoke(gridbot, arguments, input="n\n").exit_code == 1
        assert not waits(site, bot)
        found = runner.invoke(gridbot, [*arguments, "--yes"])
    assert found.exit_code == 0, found.output
    assert f"BOTs that wait for another signature: {bot}; submit them again" in found.stdout
    assert waits(site, bot)
