"""Preferences and pauses suspend what a machine runs, and it goes on where it was."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.system.deployment import NO_COPIES, Deployment, eventually

from gridbot_client.protocol.preferences import DAYS


def prefer(running: Deployment, name: str, *words: str, code: int = 0) -> str:
    data = ("--data", str(running.folder / name))
    return running.run("client", "prefs", *words, *data, code=code)


def is_suspended(running: Deployment, name: str) -> bool:
    """Whether a client has jobs, and none of their processes may run."""
    with suppress(psutil.NoSuchProcess):  # one that ends just now was not suspended
        found = running.programs(name)
        below = [p for program in found for p in (program, *program.children(recursive=True))]
        return bool(below) and not any(map(may_run, below))
    return False


def may_run(process: psutil.Process) -> bool:
    """Whether a process may run before somebody lets it.

    A shell that is stopped while it starts a program waits in vfork(2), where no signal reaches it,
    until that program runs: it is as suspended as its stopped child is.
    """
    status = process.status()
    if status == psutil.STATUS_DISK_SLEEP:
        return not any(p.status() == psutil.STATUS_STOPPED for p in process.children())
    return status not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize("level", ["0", "1", "2"])
def test_on_its_battery_a_machine_keeps_jobs_in_memory_and_goes_on_with_mains(
    running: Deployment, tmp_path: Path, level: str
) -> None:
    mains = tmp_path / "sys/class/power_supply/AC"
    battery = tmp_path / "sys/class/power_supply/BAT0"
    for supply, files in (
        (mains, {"type": "Mains", "online": "1"}),
        (battery, {"type": "Battery", "status": "Discharging"}),
    ):
        supply.mkdir(parents=True)
        for file, text in files.items():
            (supply / file).write_text(text)
    name = f"laptop{level}"
    prefer(running, name, "set", "on-battery=no")
    laptop = {**running.env, "GRIDBOT_SYSTEM_ROOT": str(tmp_path)}
    running.client(name, "--cpus", "1", "--sandbox", level, env=laptop)
    gate = running.gate()
    bot = running.submit(
        "--range", "0:1", "--time", "20", "--", *gate.command("sleep 0.1; echo done"),
        policy="ReplicationRequirements = false;",
    )  # fmt: skip
    eventually(lambda: running.programs(name), what="the job")
    (mains / "online").write_text("0")
    eventually(lambda: is_suspended(running, name), what="the suspension")
    said = running.client_status(name)
    assert said.startswith("suspended: on-battery: the machine runs on its battery; 1 in memory")
    query = "SELECT 1 FROM host WHERE (ad->>'Suspended')::boolean"
    eventually(lambda: running.rows(query), what="the server's knowledge")
    gate.open()
    (mains / "online").write_text("1")
    running.wait(bot)
    ended = running.ended(bot)
    assert ended == {(0, 1): ("first", "success", True)}
    eventually(lambda: running.client_status(name).startswith("idle"))


def test_a_pause_with_an_end_suspends_until_it_is_resumed(running: Deployment) -> None:
    running.client("mine", "--cpus", "1")
    data = ("--data", str(running.folder / "mine"))
    gate = running.gate()
    bot = running.submit("--range", "0:1", "--", *gate.command())
    eventually(lambda: running.programs("mine"), what="the job")
    assert "paused until" in running.run("client", "pause", "30m", *data)
    eventually(lambda: is_suspended(running, "mine"), what="the suspension")
    assert running.client_status("mine").startswith("suspended: paused until")
    gate.open()
    running.run("client", "resume", *data)
    running.wait(bot)
    assert "is not a duration" in running.run("client", "pause", "soon", *data, code=2)


def test_what_contradicts_is_refused_and_what_holds_is_shown(running: Deployment) -> None:
    assert "cpus=2" in prefer(running, "new", "set", "cpus=2", "days=mon-fri")
    said = prefer(running, "new", "set", "cpu-share=50", code=2)
    assert "cpus = 2 contradicts cpu-share = 50" in said
    shown = prefer(running, "new", "show")
    assert shown == "cpus=2  (this machine)\ndays=mon-fri  (this machine)\n"
    assert prefer(running, "new", "unset", "cpus") == "days=mon-fri\n"


def shown(running: Deployment, name: str) -> dict[str, tuple[str, str]]:
    """Preferences of a machine, and who said each."""
    document = json.loads(prefer(running, name, "show", "--json"))
    return {key: (item["value"], item["of"]) for key, item in document.items()}


def test_what_the_account_prefers_reaches_its_machines_by_venue_and_theirs_go_before(
    running: Deployment,
) -> None:
    prefer(running, "desk", "set", "cpus=1")
    running.client("desk", "--cpus", "2")
    gate = running.gate()
    bot = running.submit("--range", "0:1", "--", *gate.command(), policy=NO_COPIES)
    eventually(lambda: running.programs("desk"), what="the job")
    tomorrow = DAYS[(time.localtime().tm_wday + 2) % 7]
    account = ("account", "prefs")
    running.run(*account, "set", "cpus=2", "on-battery=no")
    running.run(*account, "set", f"days={tomorrow}", "--venue", "work")
    both = {"cpus": ("1", "this machine"), "on-battery": ("no", "the account")}
    eventually(lambda: shown(running, "desk") == both, what="the account's preferences")
    ((host,),) = running.rows("SELECT host FROM client ORDER BY id DESC LIMIT 1")
    running.run("host", "set", str(host), "--venue", "work")
    eventually(lambda: is_suspended(running, "desk"), what="the suspension")
    there = {"cpus": ("1", "this machine"), "days": (tomorrow, "the account")}
    assert shown(running, "desk") == there
    said = running.run(*account, "unset", "days", "--venue", "work")
    assert said.splitlines() == ["default: cpus=2", "default: on-battery=no"]
    eventually(lambda: shown(running, "desk") == both, what="the default ones")
    gate.open()
    running.wait(bot)
    assert running.ended(bot) == {(0, 1): ("first", "success", True)}
    running.run(*account, "unset", "cpus", "on-battery")
    running.run("host", "set", str(host), "--venue", "none")


def test_work_that_is_suspended_for_long_goes_back_and_runs_elsewhere_at_once(
    running: Deployment,
) -> None:
    running.client("first", "--cpus", "1")
    gate = running.gate()
    bot = running.submit("--range", "0:1", "--", *gate.command(), policy=NO_COPIES)
    eventually(lambda: running.programs("first"), what="the job")
    data = ("--data", str(running.folder / "first"))
    running.run("client", "pause", "30m", *data)
    eventually(lambda: is_suspended(running, "first"), what="the suspension")
    ((_, _, client),) = running.leases(bot)
    assert running.ended(bot) == {}  # it is kept, unless the owner says otherwise
    prefer(running, "first", "set", "give-back-minutes=0")
    running.run("client", "resume", *data)  # asks at once
    running.run("client", "pause", "30m", *data)
    eventually(lambda: not running.slots("first"), 120, what="that the machine is free")
    running.client("second", "--cpus", "1")
    eventually(lambda: running.programs("second"), 120, what="the job elsewhere")
    ((_, _, other),) = running.leases(bot)
    assert other != client
    gate.open()
    running.wait(bot)
    assert running.outcomes(bot).keys() == {0}


def test_outside_network_hours_a_client_asks_for_no_work_and_says_so(running: Deployment) -> None:
    hour = time.localtime().tm_hour
    prefer(running, "night", "set", f"network-hours={(hour + 2) % 24}-{(hour + 4) % 24}")
    running.client("night", "--cpus", "1")
    reason = "not asking for work, as nothing may move now: network-hours: not at"
    eventually(lambda: reason in running.client_status("night"), what="the reason")
    bot = running.submit("--range", "0:1", "--", "true")
    prefer(running, "night", "unset", "network-hours")
    running.run("client", "resume", "--data", str(running.folder / "night"))
    running.wait(bot, 120)
    assert "nothing may move" not in running.client_status("night")
    assert running.outcomes(bot).keys() == {0}


def test_disk_that_is_to_stay_free_is_not_offered(running: Deployment) -> None:
    prefer(running, "full", "set", "disk-free=900TB")
    running.client("full", "--cpus", "1")
    query = "SELECT 1 FROM host WHERE identity LIKE '%%full' AND (ad->>'Disk')::int = 0"
    eventually(lambda: running.rows(query), 120, what="a host without disk")
