"""Preferences and pauses suspend what a machine runs, and it goes on where it was."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.system.deployment import Deployment, eventually


def prefer(running: Deployment, name: str, *words: str, code: int = 0) -> str:
    data = ("--data", str(running.folder / name))
    return running.run("client", "prefs", *words, *data, code=code)


def is_suspended(running: Deployment, name: str) -> bool:
    """Whether a client has jobs, and none of their processes may run."""
    with suppress(psutil.NoSuchProcess):  # one that ends just now was not suspended
        found = running.programs(name)
        below = [p for program in found for p in (program, *program.children(recursive=True))]
        return bool(below) and all(p.status() == psutil.STATUS_STOPPED for p in below)
    return False


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
    running.env["GRIDBOT_SYSTEM_ROOT"] = str(tmp_path)
    name = f"laptop{level}"
    prefer(running, name, "set", "on-battery=no")
    running.client(name, "--cpus", "1", "--sandbox", level)
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
    assert prefer(running, "new", "show") == "cpus=2\ndays=mon-fri\n"
    assert prefer(running, "new", "unset", "cpus") == "days=mon-fri\n"
