from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.deployment import Deployment, deployment, eventually
from tests.system.stock_client import needs_boinc, stock_client

pytestmark = needs_boinc

# Job 3 fails, job 4 ends well without the file that it should have made.
SCRIPT = 'echo "square of $1"; case $1 in 3) exit 7;; 4) exit 0;; esac; echo $(($1 * $1)) > square'
ENDS = {
    0: ("success", "", 0),
    1: ("success", "", 0),
    2: ("success", "", 0),
    3: ("error", "exit_nonzero", 7),
    4: ("error", "missing_output", 0),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Deployment]:
    with deployment() as made:
        made.configure(boinc_accounts=True)
        made.start("--sign-on-submit")
        yield made


@pytest.fixture
def running(server: Deployment) -> Iterator[Deployment]:
    yield server
    server.kill_clients()


@pytest.fixture(scope="module")
def key(server: Deployment) -> str:
    """A volunteer's key, which can join clients and nothing else."""
    server.run("user", "add", "volunteer")
    made = server.run("token", "create", "volunteer", "--scope", "join", "--json")
    return str(json.loads(made)["token"])


def test_the_stock_client_computes_a_bot(running: Deployment, key: str, tmp_path: Path) -> None:
    options = ("--output", "stdout", "--output", "square", "--attempts", "1", "--time", "10m")
    bot = running.submit("--range", "0:5", *options, "--", "sh", "-c", SCRIPT, "sh", "{}")
    with stock_client(running, key) as client:
        eventually(lambda: running.show(bot)["state"] == "done", 120, what="the end of the BOT")
        assert "[unparsed_xml]" not in client.log
    query = "SELECT seq, how, reason, exit_code FROM ended WHERE bot = %s"
    assert {seq: tuple(end) for seq, *end in running.rows(query, bot)} == ENDS
    running.run("bot", "results", str(bot), "--to", str(tmp_path))
    squares = {path.parent.name: path.read_text() for path in tmp_path.glob("*/square")}
    assert squares == {"0": "0\n", "1": "1\n", "2": "4\n"}
    said = {path.parent.name: path.read_text() for path in tmp_path.glob("*/stdout")}
    assert said == {str(seq): f"square of {seq}\n" for seq in range(3)}


def test_a_native_client_takes_its_share_of_a_bot_beside_a_stock_client(
    running: Deployment, key: str
) -> None:
    gate = running.gate()
    bot = running.submit("--range", "0:8", "--time", "10m", "--", *gate.command("echo $1"))
    running.client("native", "--cpus", "1")
    eventually(lambda: running.leases(bot), what="the native client's lease")
    (native,) = {client for _, _, client in running.leases(bot)}
    with stock_client(running, key, cpus=2):
        eventually(lambda: {client for _, _, client in running.leases(bot)} > {native})
        gate.open()
        running.wait(bot, 120)
    clients = {row[0] for row in running.rows("SELECT client FROM ended WHERE bot = %s", bot)}
    assert len(clients) == 2
    with running.session() as session:
        assert sorted(result.stdout for result in session.bot(bot).results()) == [
            f"{seq}\n" for seq in range(8)
        ]


def test_a_volunteer_makes_an_account_and_attaches_with_boinccmd(running: Deployment) -> None:
    bot = running.submit("--range", "0:2", "--time", "10m", "--", "echo", "{}")
    person = ("ann@example.com", "a password", "Ann")
    with stock_client(running) as client:
        client.listens()
        made = client.command("--create_account", client.url, *person)
        found = client.command("--lookup_account", client.url, *person[:2])
        key = re.search("account key: ([0-9a-f]{32})", made)
        assert key, made
        assert key[0] in found
        assert "account key" not in client.command("--lookup_account", client.url, "x@y.z", "no")
        client.attach(key[1])
        running.wait(bot, 120)
    assert running.made(bot) == {"first": 2}


def test_point_16_a_stock_client_stops_what_is_cancelled(running: Deployment, key: str) -> None:
    gate = running.gate()
    bot = running.submit("--range", "0:3", "--time", "10m", "--", *gate.command())
    with stock_client(running, key, cpus=2) as client:
        eventually(lambda: client.log.count("Starting task") == 2, what="the start of two jobs")
        running.run("bot", "cancel", str(bot))
        eventually(lambda: not running.leases(bot), what="the end of the leases")
        client.update()
        eventually(lambda: "name:" not in client.command("--get_tasks"), what="the end of the jobs")
        assert "[unparsed_xml]" not in client.log
        assert running.outcomes(bot) == {}


def test_a_stock_client_outlives_a_restart_of_the_server(running: Deployment, key: str) -> None:
    gate = running.gate()
    bot = running.submit("--range", "0:2", "--time", "10m", "--", *gate.command("echo $1"))
    with stock_client(running, key, cpus=2) as client:
        eventually(lambda: client.log.count("Starting task") == 2, what="the start of two jobs")
        running.stop()
        gate.open()
        eventually(lambda: "Temporarily failed upload" in client.log, 120, "an upload in vain")
        running.start("--sign-on-submit")
        running.wait(bot, 120)
    assert running.made(bot) == {"first": 2}


def test_a_stock_and_a_native_client_agree(running: Deployment, key: str) -> None:
    options = ("--quorum", "2", "--output", "square", "--time", "10m")
    command = ("sh", "-c", "echo $(($1 * $1)) > square", "sh", "{}")
    running.client("native", "--cpus", "1")
    with stock_client(running, key) as client:
        bot = running.submit("--range", "0:3", *options, "--", *command)
        client.update()
        running.wait(bot, 120)
    assert {end[1:] for end in running.ended(bot).values()} == {("success", True)}
    query = "SELECT seq, count(DISTINCT client) FROM ended WHERE bot = %s GROUP BY seq ORDER BY seq"
    assert running.rows(query, bot) == [(0, 2), (1, 2), (2, 2)]
    assert None not in running.outcomes(bot).values()


def test_a_policy_about_stock_hosts_decides_who_gets_the_work(
    running: Deployment, key: str
) -> None:
    policy = 'JobRequirements = Host.IsBoinc && Host.Memory >= 100 && Host.CpuModel != "";'
    running.client("native", "--cpus", "1")
    bot = running.submit("--range", "0:2", "--time", "10m", "--", "echo", "{}", policy=policy)
    with stock_client(running, key):
        running.wait(bot, 120)
    query = (
        "SELECT DISTINCT (h.ad->>'IsBoinc')::boolean FROM ended e JOIN host h ON h.id = e.host"
        " WHERE bot = %s"
    )
    assert running.rows(query, bot) == [(True,)]
