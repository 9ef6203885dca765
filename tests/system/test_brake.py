"""What failed alike is held, and told in one line: the program is missing, or cannot import."""

from __future__ import annotations

import csv
import json
import sys

import pytest
from tests.system.deployment import NO_COPIES, Deployment, eventually

import gridbot

JOBS = 40


def test_a_missing_program_holds_the_bot_and_burns_nothing(running: Deployment) -> None:
    said = running.run("submit", "--range", f"0:{JOBS}", "--", "./modl", "{}", code=2)
    assert "the program ./modl is no file here" in said
    running.client("typo", "--cpus", "2")
    bot = running.submit(
        "--range", f"0:{JOBS}", "--", "sh", "-c", "./modl $0", "{}", policy=NO_COPIES
    )
    said = running.run("bot", "wait", str(bot), code=1)
    assert f"bot {bot} is held: its first" in said
    assert f"gridbot bot resume {bot}" in said
    shown = running.show(bot)
    assert (shown["state"], shown["jobs_done"]) == ("held", 0)
    assert shown["jobs_failed"] + shown["jobs_in_progress"] + shown["jobs_waiting"] == JOBS
    assert shown["jobs_failed"] < JOBS
    eventually(lambda: not running.leases(bot))
    made = running.made(bot)
    # It asks again, and gets nothing.
    seen = running.rows("SELECT max(seen_at) FROM client")
    eventually(lambda: running.rows("SELECT max(seen_at) FROM client") > seen, what="a request")
    assert running.made(bot) == made
    assert "held" in running.run("bots", "--state", "held")
    assert "held until it is resumed" in running.run("bot", "explain", str(bot))
    assert shown["held"] in running.run("bot", "show", str(bot)).replace("\n", " ")
    with running.session() as session:
        assert session.bot(bot).wait(60).is_held
        with pytest.raises(gridbot.BotHeld, match="all failed alike"):
            list(session.bot(bot).results(follow=True))
    digest = json.loads(running.run("bot", "logs", str(bot), "--summary", "--json"))["groups"]
    (group,) = digest
    assert (group["reason"], group["exit_code"]) == ("exit_nonzero", 127)
    assert group["replicas"] == len(running.ended(bot))
    assert group["command"] == f"sh -c './modl $0' {group['args']['i']}"
    page = running.run("bot", "logs", str(bot), "--summary")
    assert f"to run it here: {group['command']}" in page
    running.run("bot", "resume", str(bot))
    said = running.run("bot", "wait", str(bot), code=1)
    assert f"{JOBS} of {JOBS} jobs failed" in said
    line = next(line for line in running.run("bots").splitlines() if line.split()[0] == str(bot))
    assert f"done, {JOBS} failed" in line
    running.kill_client("typo")


def test_a_missing_import_is_one_line_and_a_retry_with_the_mended_file_completes_the_results(
    running: Deployment,
) -> None:
    running.client("import", "--cpus", "2", "--allow-read", sys.prefix)
    broken = "import sys\nimport nmpy\nprint(int(sys.argv[1]) ** 2)\n"
    path = running.file("point.py", broken)
    table = running.file("table.csv", "".join(f"{n}\n" for n in ["theta", *range(JOBS)]))
    bot = running.submit(
        *("--items", str(table), "--input", f"{path}=point.py"),
        *("--", sys.executable, "point.py", "{theta}"),
        policy=NO_COPIES,
    )
    assert "all failed alike" in running.run("bot", "wait", str(bot), code=1)
    eventually(lambda: not running.leases(bot), what="the end of what was sent")
    failed, burned = running.show(bot)["jobs_failed"], len(running.ended(bot))
    page = running.run("bot", "logs", str(bot), "--summary").splitlines()
    assert page[0].startswith(f"{burned} replicas of ")
    assert page[0].endswith(" on 1 host: exit_nonzero, exit code 1")
    assert page[1] == "  ModuleNotFoundError: No module named 'nmpy'"
    assert page[3].startswith(f"  to run it here: {sys.executable} point.py ")
    assert len(page) == 4
    running.file("point.py", broken.replace("import nmpy\n", ""))
    change = ("--input", f"{path}=point.py", "--memory", "600MB")
    retried = json.loads(running.run("bot", "retry", str(bot), "--failed", *change, "--json"))
    assert retried == {"id": bot, "retried": failed, "version": 2}
    running.run("bot", "wait", str(bot))
    with running.session() as session:
        results = {result.seq: result for result in session.bot(bot).results()}
    assert {seq: result.stdout for seq, result in results.items()} == {
        n: f"{n * n}\n" for n in range(JOBS)
    }
    assert {result.version for result in results.values()} == {2}
    running.run("bot", "results", str(bot), "--csv", str(running.folder / "results.csv"))
    with (running.folder / "results.csv").open() as file:
        assert {row["version"] for row in csv.DictReader(file)} == {"2"}
    assert running.show(bot)["resources"]["memory_mb"] == 600
    running.kill_client("import")


def test_what_runs_while_its_bot_is_retried_ends_with_the_version_that_it_began_with(
    running: Deployment,
) -> None:
    gate = running.gate()
    script = running.file("say.sh", "echo first\n")
    running.client("versions", "--cpus", "1")
    bot = running.submit(
        *("--range", "0:3", "--input", f"{script}=say.sh", "--", *gate.command("sh say.sh")),
        policy=NO_COPIES,
    )
    eventually(lambda: running.programs("versions"), what="a job")
    # Held ahead on the client are jobs of the first version, too.
    sent = {seq for seq, _, _ in running.leases(bot)}
    running.file("say.sh", "echo second\n")
    running.run("bot", "retry", str(bot), "--input", f"{script}=say.sh")
    sent |= {seq for seq, _, _ in running.leases(bot)}
    gate.open()
    running.run("bot", "wait", str(bot))
    with running.session() as session:
        results = {result.seq: result for result in session.bot(bot).results()}
    words = {1: "first\n", 2: "second\n"}
    assert {result.stdout for result in results.values() if result.version == 1} <= {"first\n"}
    assert all(result.stdout == words[result.version] for result in results.values())
    assert results[0].version == 1
    assert {seq for seq, result in results.items() if result.version == 1} <= sent
    running.kill_client("versions")
