"""A stock client that a volunteer attaches, and what it does next to a native one.

Jobs of every kind, a bad network and a restart are in `test_boinc_mixed`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psutil
import pytest
import requests
from tests.boinc_captures import captures
from tests.system.deployment import Deployment, deployment, eventually
from tests.system.stock_client import StockClient, needs_boinc, stock_client

pytestmark = needs_boinc

PERSON = ("ann@example.com", "a password", "Ann")


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


@dataclass(frozen=True)
class Volunteer:
    """A client on two cores, and what its server said when the volunteer came."""

    client: StockClient
    made: str
    found: str
    stranger: str


@pytest.fixture(scope="module")
def volunteer(server: Deployment) -> Iterator[Volunteer]:
    """Somebody who makes an account with boinccmd and attaches with the key that it printed."""
    with stock_client(server, cpus=2) as client:
        client.listens()
        made = client.command("--create_account", client.url, *PERSON)
        found = client.command("--lookup_account", client.url, *PERSON[:2])
        stranger = client.command("--lookup_account", client.url, "x@y.z", "no")
        client.attach(key_in(made))
        yield Volunteer(client, made, found, stranger)


@pytest.fixture
def client(volunteer: Volunteer) -> StockClient:
    return volunteer.client


def key_in(text: str) -> str:
    found = re.search("account key: ([0-9a-f]{32})", text)
    assert found, text
    return found[1]


def test_a_volunteer_makes_an_account_and_attaches_with_boinccmd(
    running: Deployment, volunteer: Volunteer
) -> None:
    assert key_in(volunteer.found) == key_in(volunteer.made)
    assert "account key" not in volunteer.stranger
    bot = running.submit("--range", "0:2", "--time", "10m", "--", "echo", "{}")
    running.wait(bot, 120)
    assert running.made(bot) == {"first": 2}
    assert "[unparsed_xml]" not in volunteer.client.log


def test_a_native_client_takes_its_share_beside_a_stock_client_where_policies_let_it(
    running: Deployment, client: StockClient
) -> None:
    policy = 'JobRequirements = Host.IsBoinc && Host.Memory >= 100 && Host.CpuModel != "";'
    picky = running.submit("--range", "0:2", "--time", "10m", "--", "echo", "{}", policy=policy)
    gate = running.gate()
    bot = running.submit("--range", "0:6", "--time", "10m", "--", *gate.command("echo $1"))
    running.client("native", "--cpus", "1")
    eventually(lambda: running.leases(bot), what="the native client's lease")
    client.update()
    eventually(lambda: len({client for _, _, client in running.leases(bot)}) == 2)
    gate.open()
    running.wait(bot, 120)
    running.wait(picky, 120)
    assert stock_ones(running, bot) == {False, True}
    assert stock_ones(running, picky) == {True}
    with running.session() as session:
        assert sorted(result.stdout for result in session.bot(bot).results()) == [
            f"{seq}\n" for seq in range(6)
        ]


def test_a_stock_clients_job_is_held_to_its_memory_and_leaves_nothing_running(
    running: Deployment, client: StockClient
) -> None:
    hungry = "x = bytearray(300 << 20); import time; time.sleep(600)"
    common = ("--time", "10m", "--attempts", "1", "--memory", "100", "--")
    fat = running.submit(*common, "python3", "-S", "-c", hungry)
    daemon = running.submit(*common, "sh", "-c", "(setsid sleep 4321.5 &)")
    walled = running.submit("--sandbox", "1", *common, "true")
    client.update()
    ends = "SELECT how, reason FROM ended WHERE bot = %s"
    eventually(lambda: running.rows(ends, fat), 120, "the end of the hungry job")
    assert running.rows(ends, fat) == [("error", "memory_limit")]
    running.wait(daemon, 120)
    # A process that is just ending has no command line.
    left = [p for p in psutil.process_iter(["cmdline"]) if "4321.5" in (p.info["cmdline"] or [])]
    assert left == []
    assert running.rows(ends, walled) == [] and not running.leases(walled)
    assert "asks for sandbox level 1" in running.run("bot", "explain", str(walled))
    running.run("bot", "cancel", str(walled))


def stock_ones(server: Deployment, bot: int) -> set[bool]:
    """Whether the hosts that ran the BOT's jobs are stock ones."""
    query = (
        "SELECT DISTINCT (h.ad->>'IsBoinc')::boolean IS TRUE"
        " FROM ended e JOIN host h ON h.id = e.host WHERE bot = %s"
    )
    return {row[0] for row in server.rows(query, bot)}


def test_point_16_a_stock_client_stops_what_is_cancelled(
    running: Deployment, client: StockClient
) -> None:
    gate = running.gate()
    bot = running.submit("--range", "0:3", "--time", "10m", "--", *gate.command())
    client.update()
    eventually(lambda: sum(client.tasks(bot).values()) == 2, what="the start of two jobs")
    running.run("bot", "cancel", str(bot))
    eventually(lambda: not running.leases(bot), what="the end of the leases")
    client.update()
    eventually(lambda: not client.tasks(bot), what="the end of the jobs")
    assert "[unparsed_xml]" not in client.log
    assert running.outcomes(bot) == {}


def test_a_stock_client_follows_the_preferences_of_its_account_by_venue(
    running: Deployment,
) -> None:
    key = running.add_user("pia")
    join = json.loads(running.run("token", "create", "pia", "--scope", "join", "--json"))["token"]
    now = datetime.now(UTC).hour  # the client's clock shows UTC
    later = f"hours={(now + 2) % 24}-{(now + 4) % 24}"
    running.run("account", "prefs", "set", later, "memory-when-idle=44", key=key)
    running.run("account", "prefs", "set", "memory-when-idle=33", "--venue", "work", key=key)
    with stock_client(running, join) as client:
        client.listens()
        eventually(lambda: "General prefs: from" in client.log, 120, "the preferences")
        kept = (client.folder / "global_prefs.xml").read_text()
        assert f"<start_hour>{float((now + 2) % 24):.4f}</start_hour>" in kept
        assert '<venue name="work">' in kept
        status = partial(client.command, "--get_cc_status")
        eventually(lambda: "suspended: time of day" in status(), what="the suspension")
        (host,) = {int(item["id"]) for item in hosts_of(running, key)}
        running.run("host", "set", str(host), "--venue", "work", key=key)
        client.update()
        eventually(lambda: "using separate prefs for work" in client.log, 120, "the venue's")
        eventually(lambda: "suspended: time of day" not in status(), what="that it goes on")
        told = client.log.count("General prefs: from")
        asked = client.log.count("Scheduler request completed")
        client.update()
        eventually(lambda: client.log.count("Scheduler request completed") > asked)
        assert memory_share(client) == 33
        assert client.log.count("General prefs: from") == told  # only what is new is told


def memory_share(client: StockClient) -> float:
    """Per cent of the memory that a client lends to idle times, as it said when it asked last."""
    (request,) = client.folder.glob("sched_request_*.xml")
    found = re.search(r"<ram_max_used_idle_pct>([\d.]+)", request.read_text(errors="replace"))
    return float(found[1]) if found else 0.0


def hosts_of(server: Deployment, key: str) -> list[dict[str, Any]]:
    """The hosts of an account."""
    return list(json.loads(server.run("host", "list", "--json", key=key))["hosts"])


def test_a_first_contact_whose_reply_was_lost_is_not_given_more_work(running: Deployment) -> None:
    running.run("user", "add", "lab")
    made = running.run("token", "create", "lab", "--scope", "join", "--json")
    key = json.loads(made)["token"]
    bot = running.submit("--range", "0:2000", "--time", "10m", "--", "echo", "{}")
    bare = running.bare_client("early")
    eventually(lambda: bare.ask().assignments, what="that there is work to give")
    first, again = first_contact(running, key), first_contact(running, key)
    assert first == again != set()
    ours = [seq for seq, _, client in running.leases(bot) if client == client_of(first)]
    assert len(ours) == len(first)
    running.run("bot", "cancel", str(bot))


def client_of(names: set[str]) -> int:
    """The client to which replicas of these names were given."""
    (client,) = {int(name.split("_")[4]) for name in names}
    return client


def first_contact(server: Deployment, key: str) -> set[str]:
    """The names of what a client is given that does not know its number."""
    body = re.sub(
        rb"<authenticator>[^<]*", b"<authenticator>" + key.encode(), captures()["run1_003_ok"]
    )
    reply = requests.post(f"{server.url}/boinc/scheduler", body, timeout=60)
    return set(re.findall(r"<workunit>\n<name>([^<]+)", reply.text))


STEPS, STEP_SECONDS = 20, 1.0
WALK = f"""
import os, sys, time
step = int(open("state").read()) if os.path.exists("state") else 0
print("began at", step, flush=True)
for step in range(step + 1, {STEPS} + 1):
    time.sleep({STEP_SECONDS})
    open(os.environ["GRIDBOT_PROGRESS"], "w").write(str(step / {STEPS}))
    if step % 4 == 0 and step < {STEPS}:
        open("state", "w").write(str(step))
        sys.exit(85)
"""


def test_a_plain_command_shows_its_progress_and_goes_on_from_its_checkpoint(
    running: Deployment, client: StockClient
) -> None:
    common = ("--time", "10m", "--attempts", "1", "--checkpoint", "state")
    script = running.file("walk.py", WALK)
    bot = running.submit(*common, "--input", str(script), "--", "python3", "walk.py")
    client.update()
    eventually(lambda: client.fraction_done(bot) >= 0.6, 120, "12 of 20 steps")
    client.kill()
    client.start()
    running.wait(bot, 120)
    with running.session() as session:
        (result,) = session.bot(bot).results()
    began = [int(line.split()[-1]) for line in result.stdout.splitlines()]
    # What was done since the last checkpoint is done again, and nothing before.
    assert began == [0, 4, 8, 12, 16]
    ((wall_seconds,),) = running.rows("SELECT wall_seconds FROM ended WHERE bot = %s", bot)
    # What ran before the restart counts as well, up to the checkpoint.
    assert wall_seconds > STEPS * STEP_SECONDS * 0.8
