"""Claims about predictions of the end of a BOT that runs, and what another policy would change."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
from click.testing import CliRunner, Result
from tests.factories import (
    HOST,
    make_bot,
    make_client,
    make_host,
    make_lease,
    make_outcome,
)
from tests.http.conftest import Person, Site
from tests.http.loopback import serve

from gridbot.cli import gridbot
from gridbot_client.protocol.messages import Manifest, ReplicaId
from gridbot_server.bots import snapshot
from gridbot_server.bots.prediction import simulate
from gridbot_server.bots.snapshot import take_snapshot
from gridbot_server.errors import Conflict, InternalError
from gridbot_server.http.services import Services
from gridbot_server.overload.transfer_slots import Party

HOSTS = 10
USUAL = 600.0  # seconds of a job


@pytest.fixture
def bot(site: Site, alice: Person) -> int:
    """A BOT of 60 jobs on ten hosts: 20 are done, 10 run, 30 were never sent."""
    return running_bot(site, alice)


def running_bot(site: Site, owner: Person, **columns: Any) -> int:
    number = make_bot(site.conn, owner.id, jobs=60, **columns)
    machine = {**HOST, "NumCpus": 1}
    clients = [
        make_client(
            site.conn, owner.id, make_host(site.conn, owner.id, {**machine, "Name": f"box{n}"}),
            session_at="now", seqno=1,
        )[0]
        for n in range(HOSTS)
    ]  # fmt: skip
    for seq in range(20):
        done = ReplicaId(number, seq, 1)
        make_outcome(site.conn, done, clients[seq % HOSTS], {})
    seconds = "wall_seconds = 570 + 60 * (seq & 1), sent_at = now() - interval '20 min'"
    site.conn.execute(f"UPDATE ended SET {seconds} WHERE bot = %s", [number])
    for n, client in enumerate(clients):
        make_lease(site.conn, ReplicaId(number, 20 + n, 1), client)
    site.conn.execute(
        "UPDATE lease SET sent_at = now() - interval '3 min' WHERE bot = %s", [number]
    )
    site.conn.execute("INSERT INTO bot_stat VALUES (%s, 'w', 'sent_first', 30)", [number])
    return number


def ask(person: Person, bot: int, **body: Any) -> Any:
    found = person("POST", f"/api/v1/bots/{bot}/what-if", json={"seeds": 2, **body})
    assert found.status_code == 200, found.json
    return found.json


def test_a_bot_ends_when_its_hosts_have_done_what_is_left(alice: Person, bot: int) -> None:
    found = ask(alice, bot)
    left = found["now"]["figures"]["left_seconds"]
    # 10 hosts: 7 min of what runs, then three jobs each; the last ones overlap.
    assert 0.8 * (USUAL * 3 + 420) < left["low"] <= left["high"] < 2 * (USUAL * 3 + 420)
    assert (found["jobs_left"], found["hosts"], found["seeds"]) == (40, 10, 2)
    assert found["now"]["figures"]["replicas"]["low"] >= 30
    assert found["verdict"].startswith("ends in ")
    assert (found["tried"], found["differences"]) == (None, None)


def test_a_policy_is_tried_and_nothing_is_changed(site: Site, alice: Person, bot: int) -> None:
    before = site.conn.execute("SELECT policy, policy_version FROM bot").fetchall()
    found = ask(alice, bot, policy="JobRequirements = false;", seeds=1)
    assert found["now"]["figures"]["left_seconds"] is not None
    assert found["tried"]["figures"]["left_seconds"] is None
    assert found["sooner"] == 0
    assert (
        found["verdict"] == "would not end: no host had a replica for a day: none meets the policy"
    )
    assert site.conn.execute("SELECT policy, policy_version FROM bot").fetchall() == before


def test_where_more_is_in_progress_than_is_read_nothing_is_predicted(
    site: Site, alice: Person, bot: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "MOST_JOBS", 10)
    assert ask(alice, bot)["jobs_left"] == 40
    other = site.client_of(alice)
    make_lease(site.conn, ReplicaId(bot, 20, 2), other.id)  # an 11th replica, of no further job
    found = alice("POST", f"/api/v1/bots/{bot}/what-if", json={"seeds": 1})
    assert found.status_code == 409
    assert "more than 10 of its jobs are in progress, or of their replicas" in found.json["detail"]


def test_a_policy_with_an_error_is_refused_before_anything_runs(alice: Person, bot: int) -> None:
    found = alice("POST", f"/api/v1/bots/{bot}/what-if", json={"policy": "Rank = 1 +;"})
    assert (found.status_code, found.json["error"]) == (400, "PolicyError")


@pytest.mark.parametrize(
    "body", [{"seeds": 0}, {"seeds": 65}, {"policy": "x" * 20_001}, {"jobs": 1}]
)
def test_what_goes_beyond_a_limit_is_refused(alice: Person, bot: int, body: dict[str, Any]) -> None:
    found = alice("POST", f"/api/v1/bots/{bot}/what-if", json=body)
    assert (found.status_code, found.json["error"]) == (400, "RequestError")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("state = 'done'", "it is done"),
        ("state = 'open'", "it is open: its submission is not complete"),
        ("growing = true", "it grows; it ends once it is closed: gridbot bot close 1"),
        ("held = 'alice held it'", "it is held; once it is resumed, it goes on"),
        ("suspended = 'too dear'", "it is suspended until its policy is changed"),
        ("waits_for_signature = true", "it waits for a signature: gridbot app sign 1"),
        ("together = 4", "its jobs run together, which is not simulated"),
    ],
)
def test_a_bot_that_does_not_end_by_itself_is_not_predicted(
    site: Site, alice: Person, bot: int, change: str, why: str
) -> None:
    site.conn.execute(f"UPDATE bot SET {change}")
    found = alice("POST", f"/api/v1/bots/{bot}/what-if", json={})
    assert found.status_code == 409
    assert found.json["detail"].startswith(f"the end of BOT {bot} cannot be predicted: {why}")


def test_before_a_job_has_ended_nobody_knows_how_long_they_take(site: Site, alice: Person) -> None:
    new = make_bot(site.conn, alice.id, jobs=5)
    found = alice("POST", f"/api/v1/bots/{new}/what-if", json={})
    assert found.status_code == 409
    assert "0 of its jobs have ended with an answer" in found.json["detail"]


def test_of_others_bots_nothing_is_known_but_their_load(
    site: Site, alice: Person, bob: Person, bot: int
) -> None:
    manifest = Manifest("bob", ("secret-program", "{i}"), {"i": "int"}).text()
    make_bot(site.conn, bob.id, jobs=30, name="secret", policy="Rank = 1234567;", manifest=manifest)
    make_bot(site.conn, alice.id, jobs=30, policy="Rank = 7654321;")
    taken = orjson.dumps(take_snapshot(site.conn, bot))
    for hidden in (b"secret", b"1234567"):
        assert hidden not in taken
    assert b"7654321" in taken
    assert b"secret" not in alice("POST", f"/api/v1/bots/{bot}/what-if", json={"seeds": 1}).data


def test_no_host_makes_predictions_fail_by_what_it_says_of_itself(
    site: Site, alice: Person, bob: Person, bot: int
) -> None:
    vain = {**HOST, "Name": 7, "NumCpus": 1e300, "Memory": 1e300, "NumGpus": 2**62, "Platform": 0.5}
    host = make_host(site.conn, bob.id, vain)
    make_client(site.conn, bob.id, host, session_at="now", seqno=1)
    assert ask(alice, bot, seeds=1)["hosts"] == HOSTS


def test_one_who_asks_gets_one_prediction_at_a_time(site: Site, alice: Person, bot: int) -> None:
    with services_of(site).predictions.held(Party(owner="alice")):
        found = alice("POST", f"/api/v1/bots/{bot}/what-if", json={})
    assert found.status_code == 503
    assert found.json["detail"] == "too many predictions of this owner at once, try again later"


def test_a_simulation_that_takes_too_long_is_ended_with_its_process(site: Site, bot: int) -> None:
    order = {"snapshot": take_snapshot(site.conn, bot), "policy": None, "seeds": 8}
    with pytest.raises(Conflict, match=r"too much left to simulate it within 0 s: try fewer seeds"):
        simulate(order, seconds=0.05)
    assert children() == set()


def test_a_simulation_that_fails_is_a_defect_of_ours_and_tells_nothing(
    site: Site, bot: int
) -> None:
    with pytest.raises(InternalError, match="the server's log says why"):
        simulate({"snapshot": {"bot": None}, "policy": None, "seeds": 1})


def services_of(site: Site) -> Services:
    found: Services = site.app.extensions["gridbot"]
    return found


def children() -> set[int]:
    return {
        child.pid
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE and "what_if" in str(child.cmdline())
    }


# ------------------------------------------------------------------------------ the command


def command(site: Site, person: Person, home: Path, *arguments: object) -> Result:
    with serve(site.app) as url:
        environment = {
            "GRIDBOT_SERVER": url,
            "GRIDBOT_KEY": person.token,
            "XDG_CONFIG_HOME": str(home),
            "TZ": "UTC",
        }
        words = ["bot", "what-if", *map(str, arguments)]
        return CliRunner(env=environment).invoke(gridbot, words)


def test_the_command_says_when_it_ends_and_how_to_apply_the_policy(
    site: Site, alice: Person, bot: int, tmp_path: Path
) -> None:
    policy = tmp_path / "my tail.ad"
    policy.write_text("ReplicationRequirements = true;", encoding="utf-8")
    found = command(site, alice, tmp_path, bot, "--policy", policy, "--seeds", 2)
    assert found.exit_code == 0, found.output
    clock = r"([0-9-]+ )?[0-9]{2}:[0-9]{2}"
    first = found.stdout.partition("\n")[0]
    assert re.fullmatch(
        rf"bot 1: ends {clock}-{clock} instead of {clock}, sooner in [0-2] of 2 simulations; .*",
        first,
    )
    assert "speculative ones" in found.stdout
    assert found.stdout.endswith(
        f"nothing is changed; to apply it: gridbot bot set 1 --policy '{policy}'\n"
    )


def test_the_command_without_a_policy_predicts_and_applies_nothing(
    site: Site, alice: Person, bot: int, tmp_path: Path
) -> None:
    found = command(site, alice, tmp_path, bot, "--seeds", 1)
    assert found.exit_code == 0, found.output
    assert re.match(r"bot 1: ends ([0-9-]+ )?[0-9]{2}:[0-9]{2}-", found.stdout)
    assert "gridbot bot set" not in found.stdout
    document = json.loads(command(site, alice, tmp_path, bot, "--seeds", 1, "--json").stdout)
    assert (document["bot"], document["seeds"], document["tried"]) == (1, 1, None)


def test_the_command_gives_the_servers_reason(
    site: Site, alice: Person, bot: int, tmp_path: Path
) -> None:
    site.conn.execute("UPDATE bot SET growing = true")
    found = command(site, alice, tmp_path, bot)
    assert found.exit_code != 0
    assert "it grows; it ends once it is closed: gridbot bot close 1" in found.stderr
