"""Programs that save checkpoints go on from them: here, later, and on other machines."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.system.deployment import NO_COPIES, Deployment, eventually

from gridbot import checkpoint
from gridbot_server.storage import invariants

# It counts to $1, one step a tenth of a second, notes each step in the file $2, and saves every
# ten steps or when it is asked to end.  It stays at step N while there is a file $2.N.
COUNT = """
asked=
trap 'asked=1' TERM
n=0
test -e state && n=$(cat state)
echo "began at $n"
while test "$n" -lt "$1"; do
    n=$((n + 1))
    echo "$n" >> "$2"
    sleep 0.1
    while test -e "$2.$n" && test -z "$asked"; do sleep 0.1; done
    if test "$asked" || test $((n % 10)) = 0; then
        echo "$n" > state
        exit 85
    fi
done
echo "counted to $n"
"""


def submit(
    server: Deployment, steps: int, *options: str, policy: str = NO_COPIES
) -> tuple[int, Path]:
    noted = server.folder / f"noted-{time.monotonic_ns()}"
    noted.touch(mode=0o666)
    noted.chmod(0o666)
    program = server.file("count.sh", COUNT)
    bot = server.submit(
        "--checkpoint", "state", "--checkpoint-every", "1s", "--input", f"{program}=count.sh",
        *options, "--", "sh", "count.sh", str(steps), str(noted), policy=policy,
    )  # fmt: skip
    return bot, noted


def steps_in(noted: Path) -> list[int]:
    return [int(line) for line in noted.read_text().split()]


def has_steps(noted: Path, least: int) -> bool:
    return len(steps_in(noted)) >= least


def stdout_of(server: Deployment, bot: int) -> str:
    with server.session() as session:
        [result] = session.bot(bot).results()
        return str(result.stdout)


def logs_of(server: Deployment, bot: int) -> list[Any]:
    with server.session() as session:
        return list(session.bot(bot).logs())


def numbers(server: Deployment, bot: int) -> list[int]:
    return [row[0] for row in server.rows("SELECT number FROM checkpoint WHERE bot = %s", bot)]


def newest_after(server: Deployment, bot: int, before: int) -> int:
    """The number of the newest checkpoint, once there is one after another."""
    newest = max(numbers(server, bot), default=0)
    return newest if newest > before else 0


def test_a_program_that_exits_with_85_goes_on_from_its_files(running: Deployment) -> None:
    running.client("one", "--cpus", "1")
    bot, noted = submit(running, 25)
    running.wait(bot)
    assert steps_in(noted) == list(range(1, 26))
    assert stdout_of(running, bot) == "began at 0\nbegan at 10\nbegan at 20\ncounted to 25\n"
    assert running.ended(bot) == {(0, 1): ("first", "success", True)}
    eventually(lambda: not numbers(running, bot), what="the end of its checkpoint")


def test_what_a_stopped_client_had_it_goes_on_with(running: Deployment) -> None:
    running.client("one", "--cpus", "1")
    bot, noted = submit(running, 60)
    for least in (15, 30):
        eventually(partial(has_steps, noted, least), what="some steps")
        running.client_ends("one", signal.SIGTERM)
        running.kill_client("one")
        running.client("one", "--cpus", "1")
    running.wait(bot)
    assert steps_in(noted) == list(range(1, 61))
    assert stdout_of(running, bot).splitlines()[-1] == "counted to 60"


def test_three_machines_do_one_job_one_after_the_other(running: Deployment) -> None:
    bot, noted = submit(running, 90)
    for name, last in (("one", 25), ("two", 55)):
        noted.with_name(f"{noted.name}.{last}").touch()
        before = max(numbers(running, bot), default=0)
        running.client(name, "--cpus", "1")
        eventually(partial(has_steps, noted, last), what="some steps")
        acknowledged = partial(newest_after, running, bot, before)
        newest = eventually(acknowledged, what="a checkpoint of this machine")
        running.run("client", "leave", "--yes", "--data", str(running.folder / name))
        running.kill_client(name)
    running.client("three", "--cpus", "1")
    running.wait(bot)
    begun = [
        int(line.split()[-1]) for line in stdout_of(running, bot).splitlines() if "beg" in line
    ]
    assert begun == sorted(begun)
    assert newest > 2
    assert steps_in(noted) == sorted(steps_in(noted))  # nothing was done twice
    assert (
        len(
            {
                client
                for _, _, client in running.rows(
                    "SELECT seq, replica, client FROM ended WHERE bot = %s", bot
                )
            }
        )
        == 3
    )
    with running.database() as conn:
        assert invariants.check(conn, idle=False) == []


def test_a_client_that_is_killed_goes_on_from_the_last_checkpoint(running: Deployment) -> None:
    running.client("one", "--cpus", "1")
    bot, noted = submit(running, 40)
    for least in (13, 26):
        eventually(partial(has_steps, noted, least), what="some steps")
        running.kill_client("one")
        running.client("one", "--cpus", "1")
    running.wait(bot)
    done = steps_in(noted)
    assert sorted(set(done)) == list(range(1, 41))
    assert len(done) <= 40 + 2 * 10  # of each kill, what came after a checkpoint
    begun = [line for line in stdout_of(running, bot).splitlines() if line.startswith("began")]
    assert begun == [f"began at {step}" for step in (0, 10, 20, 30, 40)]


def test_answers_of_a_quorum_do_not_come_from_one_checkpoint(running: Deployment) -> None:
    bot, noted = submit(running, 30, "--quorum", "2")
    running.client("one", "--cpus", "1")
    running.client("two", "--cpus", "1")
    running.wait(bot)
    assert sorted(steps_in(noted)) == sorted([*range(1, 31)] * 2)


def test_a_program_that_saves_the_same_again_and_again_fails(running: Deployment) -> None:
    running.client("one", "--cpus", "1")
    bot = running.submit(
        "--checkpoint", "state", "--attempts", "1", "--", "sh", "-c", "echo x > state; exit 85"
    )
    eventually(lambda: running.outcomes(bot), what="the end of the job")
    [log] = logs_of(running, bot)
    assert log["reason"] == "no_progress"
    assert "alike" in log["stderr"]


def test_a_checkpoint_has_only_plain_files_of_the_size_that_outputs_may_have(
    running: Deployment,
) -> None:
    running.client("one", "--cpus", "1")
    too_big = "head -c 3000000 /dev/zero > state; exit 85"
    for script, reason in [
        ("exit 85", "bad_checkpoint"),
        ("ln -s /etc/passwd state; exit 85", "bad_checkpoint"),
        (too_big, "checkpoint_too_big"),
    ]:
        bot = running.submit(
            "--checkpoint", "state", "--attempts", "1", "--max-output", "2MB",
            "--", "sh", "-c", script,
        )  # fmt: skip
        eventually(partial(running.outcomes, bot), what="the end of the job")
        [log] = logs_of(running, bot)
        assert log["reason"] == reason


PYTHON = """
import os, sys
sys.path.insert(0, ".")
import checkpoint
state = checkpoint.load({"step": 0, "starts": 0})
state["starts"] += 1
while state["step"] < 20:
    state["step"] += 1
    checkpoint.progress(state["step"] / 20)
    if state["step"] % 5 == 0 or checkpoint.is_due():
        checkpoint.save(state)
print(state["starts"])
"""


def test_a_python_program_saves_and_loads_its_state(running: Deployment) -> None:
    running.client("one", "--cpus", "1")
    program = running.file("steps.py", PYTHON)
    bot = running.submit(
        "--checkpoint", "state.json", "--input", f"{program}=steps.py",
        "--input", f"{checkpoint.__file__}=checkpoint.py", "--", "python3", "steps.py",
    )  # fmt: skip
    running.wait(bot)
    assert stdout_of(running, bot) == "5\n"


def test_how_far_a_job_is_is_shown_by_the_client_and_by_the_server(running: Deployment) -> None:
    running.client("one", "--cpus", "1")
    gate = running.gate()
    wait = gate.command(
        'echo 30% > "$GRIDBOT_PROGRESS"; while ! test -e /nowhere; do sleep 1; done'
    )
    gate.open()
    bot = running.submit("--", *wait[:-1], "x")
    eventually(lambda: "30 % done" in running.client_status("one"), what="the client's word")
    eventually(lambda: running.show(bot)["replicas"]["progress"], what="the server's word")
    assert "30 % done" in running.run("bot", "show", str(bot))


def test_a_job_that_outlives_the_walltime_of_pilots_goes_on_in_the_next_ones(
    running: Deployment,
) -> None:
    bot, noted = submit(running, 130, "--time", "1h")
    pilots = 0
    while not running.outcomes(bot):
        pilots += 1
        assert pilots < 8
        name = f"pilot-{pilots}"
        running.client(name, "--cpus", "1", "--pilot", name, "--walltime", "28s")
        assert running.client_ends(name) == 0
    assert pilots > 1
    assert steps_in(noted) == list(range(1, 131))  # no step was done twice
    assert stdout_of(running, bot).splitlines()[-1] == "counted to 130"
