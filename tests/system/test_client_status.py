"""A machine that joins as the pages say, and what its owner reads."""

from __future__ import annotations

import json

from tests.system.deployment import Deployment, eventually


def test_a_volunteer_reads_why_the_machine_is_idle_and_then_what_it_does(
    running: Deployment,
) -> None:
    games = running.add_user("games")
    running.run("user", "add", "ada")
    made = running.run("token", "create", "ada", "--scope", "join", "--json")
    data = ("--data", str(running.folder / "ada"))
    running.run("client", "join", running.url, "--key", json.loads(made)["token"], *data)
    assert "the client is not running" in running.run("client", "status", *data, code=3)
    running.client("ada", "--cpus", "1", "--memory", "512")
    nothing = "idle: the server has no unsent jobs"
    eventually(lambda: running.client_status("ada").startswith(nothing))
    gate = running.gate()
    bot = running.submit("--range", "0:1", "--", *gate.command(), key=games)
    unsigned = "idle: 1 BOT waits, and none suits: 1: not signed by the project"
    said = eventually(lambda: _line(running.client_status("ada"), unsigned))
    assert "gridbot client trust FINGERPRINT" in said
    running.run("bot", "cancel", str(bot), key=games)


def test_the_owner_of_a_machine_reads_which_jobs_it_runs_and_since_when(
    running: Deployment,
) -> None:
    gate = running.gate()
    running.client("busy", "--cpus", "1")
    bot = running.submit("--range", "0:1", "--", *gate.command())
    eventually(lambda: running.client_status("busy").startswith("running 1"))
    said = running.client_status("busy")
    assert f"\n  job 0 of BOT {bot}, for " in said
    assert "done today: 0 jobs; credit so far: 0" in said
    gate.open()
    running.wait(bot)
    eventually(lambda: "done today: 1 job;" in running.client_status("busy"))


def _line(text: str, start: str) -> str:
    return next((line for line in text.splitlines() if line.startswith(start)), "")
