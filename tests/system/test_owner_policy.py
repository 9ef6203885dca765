from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.deployment import NO_COPIES, Deployment, deployment, eventually


@pytest.fixture(scope="module")
def server() -> Iterator[Deployment]:
    with deployment() as made:
        made.start()
        yield made


@pytest.fixture
def running(server: Deployment) -> Iterator[Deployment]:
    yield server
    server.kill_clients()


def status(server: Deployment, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(server.client_status(name, "--json"))
    return found


def host_with(server: Deployment, requirements: str) -> int:
    query = "SELECT id FROM host WHERE ad->>'Requirements' = %s"
    rows = eventually(lambda: server.rows(query, requirements), what="the host's ad")
    return int(rows[0][0])


def hosts_of(server: Deployment, bot: int) -> set[int]:
    return {row[0] for row in server.rows("SELECT host FROM ended WHERE bot = %s", bot)}


def log(server: Deployment, name: str) -> str:
    path: Path = server.folder / f"{name}.log"
    return path.read_text()


def test_what_one_host_refuses_goes_to_another(running: Deployment) -> None:
    eve = running.add_user("eve")
    trusted = json.loads(running.run("key", "list", "--json", key=eve))["here"]
    not_eves = 'BOT.Owner != "eve"'
    running.client("picky", "--cpus", "1", "--trust", trusted, "--requirements", not_eves)
    picky = host_with(running, not_eves)
    refused = running.submit("--range", "0:3", "--", "true", key=eve)
    welcome = running.submit("--range", "0:3", "--", "true")
    running.wait(welcome)
    assert hosts_of(running, welcome) == {picky}
    assert running.leases(refused) == [] and running.ended(refused) == {}
    running.client("open", "--cpus", "1", "--trust", trusted)
    running.wait(refused)
    assert picky not in hosts_of(running, refused)
    assert status(running, "picky")["requirements"] == not_eves


def test_a_host_whose_owner_withdrew_leave_reports_and_gets_nothing(running: Deployment) -> None:
    gate = running.gate()
    bot = running.submit(
        *("--range", "0:2", "--", *gate.command()),
        policy=f"Concurrency = 1; {NO_COPIES}",
    )
    running.client("tired", "--cpus", "1")
    eventually(lambda: running.leases(bot), what="a lease")
    running.kill_client("tired")
    gate.open()
    running.client("tired", "--cpus", "1", "--requirements", "ClockMin >= 0 && LoadAvg < 0")
    eventually(lambda: running.ended(bot), what="a report")
    assert [(name, how) for name, (_, how, _) in running.ended(bot).items()] == [
        ((0, 1), "success")
    ]
    assert running.leases(bot) == []
    assert log(running, "tired").count("not asking for work") == 1
    assert status(running, "tired")["obstacle"] == "LoadAvg < 0"
    running.kill_client("tired")
    running.client("tired", "--cpus", "1")
    eventually(lambda: log(running, "tired").count("not asking for work") == 2, what="the policy")
    running.kill_client("tired")
    running.client("tired", "--cpus", "1", "--requirements", "")
    running.wait(bot)


def test_a_bad_policy_is_refused_before_anything_starts(running: Deployment) -> None:
    folder = running.folder / "never"
    where = ("client", "run", "--once", "--data", str(folder))
    said = running.run(*where, "--requirements", 'BOT.Owner != "eve" &&', code=2)
    assert "--requirements: line 1, column 22: expected an expression" in said
    assert said.splitlines()[-1] == " " * 23 + "^"
    file = running.file("owner.ad", "Requirement = LoadAvg < 1;")
    assert "did you mean Requirements?" in running.run(*where, "--policy", str(file), code=2)
    assert "exclude each other" in running.run(
        *where, "--policy", "x", "--requirements", "1", code=2
    )
    assert not folder.exists()
