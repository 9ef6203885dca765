"""Flows of a Python user on a real server and client, and what is left when they are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.system.deployment import Deployment, Gate, eventually

from gridbot import BadInput, Flow, FlowFailed, GridbotError, Session
from gridbot.api.bot import Bot
from gridbot.api.results import OutputFile

PATIENCE = 120.0


@pytest.fixture
def session(
    running: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Session]:
    monkeypatch.chdir(tmp_path)
    running.client("worker", "--cpus", "4", "--allow-read", sys.prefix)
    with running.session() as made:
        yield made


def sh(script: str) -> list[str]:
    return ["sh", "-c", script, "{}"]


def bots_of(session: Session, name: str) -> list[int]:
    return [bot.id for bot in session.bots() if bot.name == name]


def test_the_console_knows_a_flow_with_its_steps_and_why_one_failed(session: Session) -> None:
    flow = Flow("shown-flow", session)
    first = flow.bot(sh("test $0 = 0"), range(2), name="first")
    flow.bot("true", after=[first], name="second")
    with pytest.raises(FlowFailed):
        flow.run()
    runs = session.connection.get("/workflows")["workflows"]
    (run,) = (run for run in runs if run["name"] == "shown-flow")
    assert (run["kind"], run["state"]) == ("flow", "failed")
    told = session.connection.get(f"/workflows/{run['id']}")
    assert [(node["name"], node["state"]) for node in told["nodes"]] == [
        ("first", "failed"), ("second", "futile"),
    ]  # fmt: skip
    failed = told["nodes"][0]
    assert (failed["bot"], failed["job"]) == (bots_of(session, "shown-flow")[0], 1)
    assert "failed with status 1" in failed["why"]


def test_outputs_flow_from_step_to_step_and_never_through_this_machine(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = Flow("three", session)
    # Too large to come with the results.
    a = flow.bot(sh("seq $0 30000 > $0.dat"), range(3), outputs=["*.dat"])
    b = flow.bot(sh("wc -l < $0"), a.outputs["*.dat"], name="count")
    c = flow.bot("sh -c 'cat */stdout; ls *.dat'", inputs=[b.outputs["stdout"], a.outputs["*.dat"]])
    fetched: list[str] = []
    blocks = OutputFile._raw_blocks

    def noted(file: OutputFile) -> Iterator[bytes]:
        if not file.is_here:  # it did not come with the results
            fetched.append(file.name)
        return blocks(file)

    monkeypatch.setattr(OutputFile, "_raw_blocks", noted)
    flow.run()
    assert fetched == []
    assert [result.args for result in a.results] == [{"i": 0}, {"i": 1}, {"i": 2}]
    assert {r.args["i"]: r.stdout.strip() for r in b.results} == {
        "0.dat": "30001", "1.dat": "30000", "2.dat": "29999",
    }  # fmt: skip
    (result,) = c.results
    assert sorted(result.stdout.split()) == ["0.dat", "1.dat", "2.dat", "29999", "30000", "30001"]
    assert (Path("three.flow.log").exists(), Path("three.flow.journal").exists()) == (True, False)
    assert len(bots_of(session, "three")) == 3


def test_a_job_over_an_output_begins_before_the_whole_step_is_done(
    session: Session, running: Deployment
) -> None:
    late, early = (Gate(running.folder / name) for name in ("late", "early"))
    for gate in (late, early):
        gate.path.touch()
    flow = Flow("stream", session)
    waits = f'if [ "$0" = 1 ]; then while test -e {late.path}; do sleep 0.05; done; fi; echo $0 > o'
    a = flow.bot(sh(waits), range(2), outputs=["o"])
    # The second job of the first step ends only when a job over its first output has run.
    b = flow.bot(sh(f"rm -f {late.path}; cat $0"), a.outputs["o"], name="over")
    flow.run()
    assert sorted(result.stdout for result in b.results) == ["0\n", "1\n"]


def test_a_function_adds_steps_when_a_result_comes(session: Session) -> None:
    flow = Flow("halving", session)
    seen: list[int] = []

    def halve(number: int) -> None:
        step = flow.bot(sh(f"echo $(({number} / 2))"), [number], name="halve")

        @step.each
        def more(result: object) -> None:
            value = int(result.stdout)  # type: ignore[attr-defined]
            seen.append(value)
            if value > 1:
                halve(value)

    halve(9)
    flow.run()
    assert seen == [4, 2, 1]
    assert list(flow.steps) == ["halve", "halve.0/halve", "halve.0/halve.0/halve"]


def test_calls_of_functions_are_steps_and_their_values_are_arguments_of_others(
    session: Session,
) -> None:
    flow = Flow("functions", session)

    @flow.task
    def add(one: int, other: int) -> int:
        return one + other

    @flow.task(name="total")
    def total(numbers: list[int], paths: list[str]) -> int:
        return sum(numbers) + sum(int(Path(path).read_text()) for path in paths)

    files = flow.bot(sh("echo $0 > $0.txt"), [100, 200], outputs=["*.txt"])
    four = add(1, add(1, 2))
    all_of_it = total([four, *add.map(range(3), range(3))], files.outputs["*.txt"])
    over = flow.bot("true", four.outputs["returned"], name="over")
    flow.run()
    assert (four.value, all_of_it.value) == (4, 310)
    assert [result.args for result in over.results] == [{"i": "returned"}]
    assert "add x5" in str(flow)


def test_what_a_function_raises_fails_its_step_and_what_needs_it_and_nothing_else(
    session: Session,
) -> None:
    flow = Flow("raises", session)

    @flow.task
    def invert(number: int) -> float:
        return 1 / number

    bad, good = invert(0), invert(2)
    below = invert(bad)
    with pytest.raises(FlowFailed, match=r"step invert: job 0 failed: .*ZeroDivisionError") as told:
        flow.run()
    assert isinstance(told.value.__cause__, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        bad.value  # noqa: B018
    assert (good.value, below.status.name) == (0.5, "FUTILE")


def test_a_failed_job_fails_its_step_unless_that_bears_it(session: Session) -> None:
    flow = Flow("fails", session, attempts=1)
    script = 'echo $0; if [ "$0" = 1 ]; then echo "no ones" >&2; exit 3; fi'
    borne = flow.bot(sh(script), range(3), max_failures=1, name="borne")
    used = flow.bot("sh -c 'cat */stdout'", inputs=[borne.outputs["stdout"]], name="used")
    strict = flow.bot(sh(script), range(3), name="strict")
    lost = flow.bot("true", after=[strict], name="lost")
    over = flow.bot("cat {}", strict.outputs["stdout"], name="over")
    with pytest.raises(FlowFailed, match="step strict: job 1 failed: exit code 3: no ones"):
        flow.run()
    assert used.results[0].stdout == "0\n2\n"
    assert (strict.status.name, lost.status.name, len(over.results)) == ("ERROR", "FUTILE", 2)


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda f: f.bot("./gone", range(2)), "gone is no file"),
        (lambda f: f.bot("echo {x}", range(2)), "step echo names {x}"),
        (lambda f: f.bot("true", memroy=5), "a step has no 'memroy'"),
        (lambda f: f.bot("true", inputs=[Flow("other").bot("true").outputs["o"]]), "another flow"),
        (lambda f: f.bot("true", inputs=["gone.txt"]), "gone.txt"),
        (lambda f: f.bot("cat {i}", range(2), inputs=["{i}.txt"]), "0.txt"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_begins(
    session: Session, declare: object, said: str
) -> None:
    flow = Flow("refused", session)
    first = flow.bot("true", name="first")
    with pytest.raises(BadInput, match=said):
        declare(flow)  # type: ignore[operator]
        flow.run()
    assert (first.status.name, bots_of(session, "refused")) == ("NOT_READY", [])
    assert not list(Path().iterdir())


def test_a_pattern_that_nothing_matches_says_what_there_is(session: Session) -> None:
    flow = Flow("typo", session)
    a = flow.bot("sh -c 'echo > a.dat'", outputs=["*.dat"])
    flow.bot("true", inputs=[a.outputs["*.data"]])
    with pytest.raises(FlowFailed, match=r"no output of step sh matches '\*.data'; .*: a.dat"):
        flow.run()


def test_a_map_over_a_pattern_that_nothing_matches_fails_and_says_what_there_is(
    session: Session,
) -> None:
    flow = Flow("map-typo", session)
    a = flow.bot("sh -c 'echo > a.dat'", outputs=["*.dat"])
    flow.bot("cat {}", a.outputs["*.data"], name="over")
    with pytest.raises(
        FlowFailed, match=r"step over: no output of step sh matches '\*.data'; .*: a.dat"
    ):
        flow.run()


def test_a_map_that_begins_when_its_source_is_over_ends(session: Session) -> None:
    flow = Flow("late", session)
    a = flow.bot(sh("echo $0 > o"), range(2), outputs=["o"], name="a")
    gate = flow.bot("true", after=[a], name="gate")
    b = flow.bot(sh("cat $0"), a.outputs["o"], after=[gate], name="b")
    flow.run()
    assert sorted(result.stdout for result in b.results) == ["0\n", "1\n"]


def test_a_job_of_a_map_that_cannot_be_made_fails_its_step_and_nothing_else(
    session: Session,
) -> None:
    flow = Flow("no-file", session)
    a = flow.bot("sh -c 'echo > a.dat'", outputs=["*.dat"], name="a")
    flow.bot("cat {}", a.outputs["*"], inputs=["{}.conf"], name="over")
    last = flow.bot("true", after=[a], name="last")
    with pytest.raises(FlowFailed, match=r"^step over: input a\.dat\.conf: No such file"):
        flow.run()
    assert last.status.name == "DONE"


def test_what_a_host_says_cannot_steer_the_terminal(session: Session) -> None:
    flow = Flow("steers", session, attempts=1)
    flow.bot(sh(r"printf 'no \033]0;ha\007' >&2; exit 3"), [0])
    with pytest.raises(FlowFailed) as told:
        flow.run()
    assert "no \\x1b]0;ha\\x07" in str(told.value)
    assert not [char for char in f"{told.value}{flow}" if char in "\x1b\x07"]


def test_the_picture_shows_steps_counts_and_why_one_waits(session: Session) -> None:
    flow = Flow("picture", session)
    a = flow.bot("true", range(3), name="make")
    flow.bot("true", inputs=[a.outputs["stdout"]], name="use")
    assert [line.split() for line in str(flow).splitlines()] == [
        ["make", "░" * 20, "0/3", "waiting"],
        ["└─", "use", "░" * 20, "0/1", "waiting", "waits", "for", "make"],
    ]
    assert '"make" -> "use";' in flow.dot()
    flow.run()
    assert str(flow).count("█" * 20) == 2


SCRIPT = """
import sys
from pathlib import Path
import gridbot

made = Path(sys.argv[1])
flow = gridbot.Flow("killed")
run = 'echo x >> "%s/$0"; sleep 0.05; echo $0 > $0.dat' % made
a = flow.bot(["sh", "-c", run, "{}"], range(12), outputs=["*.dat"])
b = flow.bot(["sh", "-c", run.replace("$0.dat", "sum.dat"), "{}"], a.outputs["*.dat"],
             outputs=["sum.dat"], name="over")

@b.each
def more(result):
    if result.seq < 3:
        flow.bot(["sh", "-c", 'echo x >> "%s/more$0"' % made, "{}"], [result.seq], name="more")

@flow.task
def count(paths, name, names=()):
    with open("%s/%s" % (made, name), "a") as file:
        file.write("x")
    return len(paths)

# A set has another order, and another pickle, in each process.
first = count([], "first", {"a", "b", "c", "d"})
last = count(b.outputs["*.dat"], "count")
flow.run()
print(last.value, len(flow.steps))
"""


def test_a_flow_that_is_killed_again_and_again_runs_no_job_twice(
    session: Session, running: Deployment, tmp_path: Path
) -> None:
    made = running.folder / "made"
    made.mkdir()
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py", str(made)]
    journal = tmp_path / "killed.flow.journal"

    def has_come_to(lines: int, process: subprocess.Popen[bytes]) -> bool:
        there = journal.read_bytes().count(b"\n") if journal.exists() else 0
        return there >= lines or process.poll() is not None

    for most in (1, 3, 8, 15, 25, 35):
        process = subprocess.Popen(command, env=running.env, stderr=subprocess.DEVNULL)
        reached = partial(has_come_to, most, process)
        eventually(reached, what=f"{most} lines in the journal")
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = subprocess.run(
        command, env=running.env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.stdout, done.returncode) == ("12 7\n", 0), done.stderr
    times = {path.name: path.read_text().count("x") for path in made.iterdir()}
    names = [str(i) for i in range(12)] + [f"{i}.dat" for i in range(12)] + ["count", "first"]
    assert times == dict.fromkeys([*names, "more0", "more1", "more2"], 1)
    assert len(bots_of(session, "killed")) == 4
    assert os.listdir(tmp_path).count("killed.flow.log") == 1


def declared(
    session: Session, name: str, ran: Path, items: object = (1, 2), number: int = 1, most: int = 0,
    is_last: bool = True, needs_task: bool = True,
) -> Flow:  # fmt: skip
    """A flow that notes each job that runs."""
    flow = Flow(name, session)

    @flow.task
    def noted(told: dict[str, object]) -> int:
        return len(told)

    note = f'cat "$0.in" >> {ran}'
    flow.bot(sh(note), items, inputs=["{i}.in"], name="first")
    call = noted({"numbers": [number], "set": {"a", "b", "c", "d"}})
    if is_last:
        flow.bot("true", after=[call] if needs_task else [], max_failures=most, name="last")
    return flow


class _Stop(BaseException):
    """As ^C, of which pytest would hear."""


def stopped(flow: Flow) -> None:
    """Run it until its first result comes."""

    @flow.steps["first"].each
    def stop(_: object) -> None:
        raise _Stop

    with pytest.raises(_Stop):
        flow.run()


def test_a_flow_whose_steps_are_others_after_a_crash_is_refused_and_loses_nothing(
    session: Session, running: Deployment
) -> None:
    ran = running.folder / "changed"
    for name in ("1.in", "2.in", "3.in"):
        Path(name).write_text(name)
    flow = declared(session, "changed", ran)
    stopped(flow)
    with pytest.raises(BadInput, match="declare a new flow"):
        flow.run()
    for changes, said in [
        ({"items": [1, 3]}, "step first has changed .*items or files"),
        ({"items": [1]}, "step first has changed .*it has 1 jobs where it had 2"),
        ({"items": [1, 2, 3]}, "step first has changed .*it has 3 jobs where it had 2"),
        ({"number": 2}, "step noted has changed .*arguments"),
        ({"is_last": False}, "step last has changed .*it is gone"),
        ({"needs_task": False}, "step last has changed .*it came after noted"),
        ({"most": 1}, "step last has changed .*max_failures was 0;"),
    ]:
        with pytest.raises(GridbotError, match=f"{said}.*rm changed.flow.journal"):
            declared(session, "changed", ran, **changes).run()  # type: ignore[arg-type]
    Path("1.in").write_text("another")
    with pytest.raises(GridbotError, match=r"step first has changed .*items or files"):
        declared(session, "changed", ran).run()
    Path("1.in").write_text("1.in")
    declared(session, "changed", ran).run()
    assert sorted(ran.read_text().split(".in")) == ["", "1", "2"]


@pytest.mark.parametrize("is_closed", [False, True])
def test_journaled_jobs_that_the_server_lacks_are_sent_in_one_request_or_fail_their_steps(
    session: Session, running: Deployment, monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    ran = running.folder / "lacks"
    for name in ("1.in", "2.in"):
        Path(name).write_text(name)
    flow = declared(session, "lacks", ran)
    stopped(flow)
    # As if the process had died before it sent the jobs of the first step.
    empty = session.submit(**flow.steps["first"].submission, name="lacks")
    if is_closed:
        empty.close()
    journal = Path("lacks.flow.journal")
    (number,) = {
        item["number"]
        for item in map(json.loads, journal.read_text().splitlines())
        if item.get("node") == "first" and "number" in item
    }
    text = journal.read_text().replace(f'"number":{number},', f'"number":{empty.id},')
    journal.write_text(text)
    sent: list[tuple[int, int]] = []
    append = Bot.append_each

    def noted(bot: Bot, jobs: Sequence[tuple[Any, Any]], *more: Any) -> range:
        sent.append((bot.id, len(jobs)))
        return append(bot, jobs, *more)

    monkeypatch.setattr(Bot, "append_each", noted)
    again = declared(session, "lacks", ran)
    if is_closed:
        with pytest.raises(FlowFailed, match=r"step first: job 0 failed: .*, and 1 more"):
            again.run()
        assert again.steps["last"].status.name == "DONE"
    else:
        again.run()
    assert [count for bot, count in sent if bot == empty.id] == [2]
