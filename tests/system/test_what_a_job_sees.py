from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.system.deployment import Deployment, eventually

from gridbot_server.storage import invariants

SECONDS = 120.0


def test_an_exit_code_is_an_answer_if_the_bot_says_so(running: Deployment) -> None:
    running.client("client", "--cpus", "2")
    script = ["sh", "-c", "echo $0; exit $0", "{}"]
    with running.session() as session:
        bot = session.submit(script, items=[0, 3, 4], exit_codes=[0, 3], attempts=1)
        bot.wait(SECONDS)
        found = {result.args["i"]: result for result in bot.results()}
        assert {i: (each.state, each.exit_code) for i, each in found.items()} == {
            0: ("done", 0), 3: ("done", 3), 4: ("failed", 4),
        }  # fmt: skip
        assert found[3].stdout == "3\n"
        assert (found[4].reason, found[4].outputs) == (
            "1 attempt failed: exit_nonzero", {},
        )  # fmt: skip
        assert {entry["how"] for entry in bot.logs(seq=1)} == {"success"}


def test_any_exit_code_is_an_answer_and_a_signal_is_none(running: Deployment) -> None:
    running.client("client", "--cpus", "2")
    with running.session() as session:
        codes = session.submit(["sh", "-c", "exit {}"], items=[0, 1, 255], exit_codes="any")
        killed = session.submit(["sh", "-c", "kill -9 $$"], exit_codes="any", attempts=1)
        codes.wait(SECONDS)
        killed.wait(SECONDS)
        assert sorted((each.state, each.exit_code) for each in codes.results()) == [
            ("done", 0), ("done", 1), ("done", 255),
        ]  # fmt: skip
        (failed,) = killed.results()
        assert (failed.state, failed.exit_code, failed.signal) == ("failed", None, 9)


def test_a_job_has_its_variables_and_reads_its_input(running: Deployment, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text(f"content of {name}\n")
    running.client("client", "--cpus", "2")
    shell = 'cat; echo "$GREETING|$HOME_OF|$GRIDBOT_JOB|$GRIDBOT_ATTEMPT"'
    with running.session() as session:
        bot = session.submit(
            ["sh", "-c", shell],
            items=["one", "two"],
            inputs=["{i}.txt"],
            stdin="{i}.txt",
            env={"GREETING": "hello {i}, $PATH", "HOME_OF": "{{}}"},
            base=tmp_path,
        )
        bot.wait(SECONDS)
        assert [result.stdout for result in sorted(bot.results(), key=lambda each: each.seq)] == [
            "content of one\nhello one, $PATH|{}|0|1\n",
            "content of two\nhello two, $PATH|{}|1|1\n",
        ]


def test_a_chain_of_appended_jobs_runs_while_the_bot_grows(running: Deployment) -> None:
    running.client("client", "--cpus", "2")
    with running.session() as session:
        bot = session.submit(["sh", "-c", "expr $0 + 1", "{}"], items=[1], growing=True)
        seen = []
        for result in bot.results(follow=True):
            seen.append(int(result.stdout))
            if len(seen) < 5:
                bot.append([seen[-1]])
            else:
                bot.close()
        assert seen == [2, 3, 4, 5, 6]
        assert bot.show().state == "done"


def test_a_chain_hands_its_files_on_at_the_server(running: Deployment) -> None:
    running.client("client", "--cpus", "2")
    script = "cat last >next 2>/dev/null; head -c 100000 /dev/zero >>next; wc -c <next"
    with running.session() as session:
        options: dict[str, Any] = {
            "outputs": ["stdout", "next"], "job_inputs": ["last"], "growing": True,
        }  # fmt: skip
        bot = session.submit(["sh", "-c", script], **options)
        bot.append([{}])
        sizes = []
        for result in bot.results(follow=True):
            sizes.append(int(result.stdout))
            if len(sizes) < 3:
                bot.append([{}], inputs=[result.outputs["next"].named("last")])
            else:
                bot.close()
        assert sizes == [100_000, 200_000, 300_000]


def test_a_growing_bot_survives_the_death_of_everything(fresh: Deployment) -> None:
    fresh.start()
    fresh.client("client", "--cpus", "2")
    with fresh.session() as session:
        bot = session.submit(["echo", "{}"], growing=True)
        for number in range(12):
            if number % 4 == 2:
                os.kill(fresh.children()["gunicorn"], signal.SIGKILL)
            if number == 5:
                fresh.kill_client("client")
                fresh.crash()
                fresh.start()
                fresh.client("client", "--cpus", "2")
            assert bot.append([number]) == range(number, number + 1)
        bot.close()
        assert bot.wait(SECONDS).jobs_done == 12
        seen = {result.seq: result.stdout for result in bot.results()}
        assert seen == {number: f"{number}\n" for number in range(12)}
    with fresh.database() as conn:
        eventually(lambda: not invariants.check(conn, idle=True))


def test_outputs_are_named_by_their_jobs(running: Deployment) -> None:
    running.client("client", "--cpus", "2")
    script = (
        "echo small > part-$0.txt; mkdir out; head -c 50000 /dev/zero > out/large; cat out/large"
    )
    with running.session() as session:
        bot = session.submit(
            ["sh", "-c", script, "{name}"],
            items=[{"name": "a"}, {"name": "b"}],
            outputs=["part-{name}.txt", "out/large=runs/{name}.bin"],
        )
        bot.wait(SECONDS)
        found = {result.args["name"]: result.outputs for result in bot.results()}
        for name in ("a", "b"):
            assert found[name].keys() == {f"part-{name}.txt", f"runs/{name}.bin"}
            assert found[name][f"part-{name}.txt"].read() == b"small\n"
            assert found[name][f"runs/{name}.bin"].read() == bytes(50_000)
