"""`DELETE /bots/ID` and `gridbot bot delete`."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.factories import make_bot, make_outcome, submission
from tests.http.conftest import Person, Site
from tests.http.loopback import serve
from tests.http.test_gridbot_command import Run, refused, runner

from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.cycles import retention


def ended(site: Site, owner: Person, state: str = "done") -> int:
    bot = make_bot(site.conn, owner.id, jobs=1)
    make_outcome(site.conn, ReplicaId(bot, 0, 1), site.client_of(owner).id, {"stdout": b"1"})
    values = {"state": state, "bot": bot}
    site.conn.execute(
        "UPDATE bot SET state = %(state)s, ended_at = now(), fed = size WHERE id = %(bot)s", values
    )
    return bot


def test_a_deleted_bot_is_out_of_sight_at_once(site: Site, alice: Person) -> None:
    bot, other = ended(site, alice), ended(site, alice, "cancelled")
    assert alice("DELETE", f"/api/v1/bots/{bot}").status_code == 202
    assert [item["id"] for item in alice("GET", "/api/v1/bots").json["bots"]] == [other]
    for path in ("", "/results", "/archive", "/logs", "/manifest", "/explanation"):
        assert alice("GET", f"/api/v1/bots/{bot}{path}").status_code == 404, path
    for path in ("/cancel", "/retry", "/start"):
        assert alice("POST", f"/api/v1/bots/{bot}{path}", json={}).status_code == 404, path
    assert alice("DELETE", f"/api/v1/bots/{bot}").status_code == 202, "a repeat"
    while retention.remove_rows(site.conn, timedelta(0)):
        pass
    assert alice("DELETE", f"/api/v1/bots/{bot}").status_code == 404


def test_only_its_owner_and_operators_delete_a_bot(
    site: Site, alice: Person, bob: Person, operator: Person
) -> None:
    first, second = ended(site, alice), ended(site, alice)
    assert bob("DELETE", f"/api/v1/bots/{first}").status_code == 404
    join = site.key_of(alice, "join")
    assert join("DELETE", f"/api/v1/bots/{first}").status_code == 403
    assert alice("DELETE", f"/api/v1/bots/{first}").status_code == 202
    assert operator("DELETE", f"/api/v1/bots/{second}").status_code == 202


@pytest.mark.parametrize("state", ["open", "running"])
def test_a_bot_that_has_not_ended_is_cancelled_first(site: Site, alice: Person, state: str) -> None:
    bot = make_bot(site.conn, alice.id, state=state)
    answer = alice("DELETE", f"/api/v1/bots/{bot}")
    assert answer.status_code == 409
    assert answer.json["detail"] == f"BOT {bot} is {state}: cancel it first"
    assert alice("GET", f"/api/v1/bots/{bot}").status_code == 200


def test_the_submit_key_of_a_deleted_bot_makes_another(site: Site, alice: Person) -> None:
    body = submission()
    first = alice("POST", "/api/v1/bots", json=body).json["id"]
    alice("POST", f"/api/v1/bots/{first}/cancel")
    assert alice("DELETE", f"/api/v1/bots/{first}").status_code == 202
    again = alice("POST", "/api/v1/bots", json=body)
    assert again.status_code == 201
    assert again.json["id"] != first


@pytest.fixture
def run(site: Site, alice: Person, tmp_path: Path) -> Iterator[Run]:
    with serve(site.app) as url:
        yield runner(url, alice, tmp_path)


def bots(run: Run) -> list[int]:
    return [item["id"] for item in json.loads(run("bots", "--json").stdout)["bots"]]


def test_the_verb_asks_before_it_deletes(run: Run, site: Site, alice: Person) -> None:
    first, second, third = (ended(site, alice) for _ in range(3))
    no = run("bot", "delete", first, second, given="n\n")
    assert (no.exit_code, no.stdout) == (1, "")
    assert "delete 2 BOTs with 2 jobs permanently?" in no.stderr
    assert no.stderr.endswith("gridbot: nothing deleted: not confirmed\n")
    nobody = run("bot", "delete", first, given="")
    assert nobody.stderr.endswith("nothing deleted: confirm at a terminal, or add --yes\n")
    assert bots(run) == [third, second, first]
    yes = run("bot", "delete", first, given="y\n")
    assert yes.stdout == f"bot {first}: deleted\n"
    silent = run("bot", "delete", "--yes", "--json", second, second)
    assert json.loads(silent.stdout) == {"deleted": [second]}
    assert bots(run) == [third]


def test_the_verb_deletes_nothing_unless_all_have_ended(
    run: Run, site: Site, alice: Person
) -> None:
    done, running = ended(site, alice), make_bot(site.conn, alice.id)
    why = refused(run("bot", "delete", "--yes", done, running))
    assert why == f"bot {running} is running; cancel it first: gridbot bot cancel {running}"
    assert refused(run("bot", "delete", "--yes", done, 999)) == "there is no BOT 999"
    assert bots(run) == [running, done]
