from __future__ import annotations

import json
import os
import signal
from functools import partial

from tests.system.deployment import NO_COPIES, Deployment, eventually


def test_three_commands_lead_to_a_first_result(fresh: Deployment) -> None:
    fresh.start()
    fresh.client("client", "--cpus", "1")
    fresh.run("submit", "--range", "0:3", "--wait", "--", "echo", "square of {}")
    with fresh.session() as session:
        lines = [result.stdout for result in session.bot(1).results()]
    assert sorted(lines) == ["square of 0\n", "square of 1\n", "square of 2\n"]


def test_a_cancelled_bot_is_gone_within_seconds(running: Deployment) -> None:
    gate = running.gate()
    running.client("client", "--cpus", "2")
    bot = running.submit("--range", "0:10", "--", *gate.command())
    eventually(lambda: len(running.leases(bot)) == 4)  # by default two run and two wait
    eventually(lambda: len(running.programs("client")) == 2)
    programs = running.programs("client")
    cancelled = json.loads(running.run("bot", "cancel", str(bot), "--json"))
    assert cancelled["state"] == "cancelled"
    eventually(lambda: not running.leases(bot), 10, what="the end of the leases")
    eventually(lambda: not running.slots("client"), 10, what="the end of the slots")
    assert not any(program.is_running() for program in programs)
    assert running.programs("client") == []
    assert {how for _, how, _ in running.ended(bot).values()} == {"cancelled"}
    assert running.outcomes(bot) == {}
    shown = running.show(bot)
    assert (shown["state"], shown["jobs_running"]) == ("cancelled", 0)


def test_a_policy_that_is_replaced_counts_from_the_next_request_on(running: Deployment) -> None:
    gate = running.gate()
    running.client("client", "--cpus", "4")
    bot = running.submit(
        *("--range", "0:8", "--", *gate.command()), policy="JobRequirements = false;"
    )
    refusal = "none of 1 BOTs suits this host now: JobRequirements (1)"
    bare = running.bare_client("watcher")
    eventually(lambda: bare.ask().message == refusal)
    assert running.leases(bot) == []
    set_policy(running, bot, "JobRequirements = Host.NumCpus == 4; Concurrency = 1;")
    eventually(lambda: len(running.leases(bot)) == 1)
    set_policy(running, bot, "JobRequirements = Host.NumCpus == 4; Concurrency = 3;")
    eventually(lambda: len(running.leases(bot)) == 3)
    gate.open()
    running.wait(bot)
    assert running.show(bot)["policy_version"] == 3
    assert running.made(bot) == {"first": 8}


def set_policy(server: Deployment, bot: int, policy: str) -> None:
    path = server.file("replacement.ad", f"{policy} {NO_COPIES}")
    server.run("bot", "set", str(bot), "--policy", str(path))


def test_retry_runs_only_the_failed_jobs_again(running: Deployment) -> None:
    absent = running.folder / "absent"
    running.client("client", "--cpus", "2")
    script = 'test "$1" -lt 3 || cat "$0"'
    command = ["sh", "-c", script, str(absent), "{}"]
    bot = running.submit("--range", "0:5", "--attempts", "1", "--", *command)
    said = running.run("bot", "wait", str(bot), code=1)
    assert f"2 of 5 jobs failed; for the reasons: gridbot bot logs {bot} --summary" in said
    assert "No such file or directory" in running.run("bot", "logs", str(bot), "--failed")
    running.file("absent", "here now\n")
    assert (
        running.run("bot", "retry", str(bot), "--failed") == f"bot {bot}: retrying 2 failed jobs\n"
    )
    running.run("bot", "wait", str(bot))
    assert running.ended(bot) == {
        **{(seq, 1): ("first", "success", True) for seq in range(3)},
        **{(seq, 1): ("first", "error", False) for seq in (3, 4)},
        **{(seq, 2): ("retry", "success", True) for seq in (3, 4)},
    }
    shown = running.show(bot)
    assert (shown["round"], shown["jobs_done"], shown["jobs_failed"]) == (1, 5, 0)
    with running.session() as session:
        assert {r.seq: r.stdout for r in session.bot(bot).results() if r.stdout} == {
            3: "here now\n",
            4: "here now\n",
        }


def has_outcomes(server: Deployment, bot: int, least: int) -> bool:
    return len(server.outcomes(bot)) >= least


def test_work_goes_on_while_the_feeder_is_killed_again_and_again(running: Deployment) -> None:
    running.client("client", "--cpus", "2")
    bot = running.submit(*("--range", "0:400", "--", "echo", "{}"), policy=NO_COPIES)
    killed = set()
    for done in (40, 160):
        eventually(partial(has_outcomes, running, bot, done))
        feeder = running.children()["feeder"]
        os.kill(feeder, signal.SIGKILL)
        killed.add(feeder)
        eventually(lambda: running.children()["feeder"] not in killed, what="another feeder")
    running.wait(bot)
    assert running.outcomes(bot) == dict.fromkeys(range(400), 1)
    assert running.made(bot) == {"first": 400}
    ranges = "SELECT * FROM feed_range WHERE bot = %s"
    eventually(lambda: not running.rows(ranges, bot), what="the end of the ranges")
