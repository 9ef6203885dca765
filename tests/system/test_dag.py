"""DAGs on a real server and client: what is left at the end, whatever is killed meanwhile."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
from tests import dag_adapter
from tests.console.test_entry import logged_in
from tests.system import dag_kills
from tests.system.deployment import GRIDBOT, Deployment, eventually

from gridbot.dag.engine import events
from gridbot.dag.run.lots import NodeLots
from gridbot.dag.run.shapes import OutputPlace, Shape, ShapedJob, submission_of

CORPUS = os.environ.get("GRIDBOT_DAGS_CORPUS", "")
PATIENCE = 150.0
JOB = """executable = job.sh
arguments = $(JOB) $(RETRY) $(code:0)
output = $(JOB).$(RETRY).out
error = $(JOB).err
transfer_input_files = $(inputs:)
queue
"""
SCRIPT = """#!/bin/sh
echo "$1 $2"
cat *.made 2>/dev/null
echo "of $1" > "$1.made"
exit "$3"
"""


@pytest.fixture
def folder(running: Deployment, tmp_path: Path) -> Path:
    running.client("worker", "--cpus", "4")
    (tmp_path / "job.sub").write_text(JOB)
    (tmp_path / "job.sh").write_text(SCRIPT)
    (tmp_path / "job.sh").chmod(0o755)
    return tmp_path


def start(running: Deployment, folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*GRIDBOT, "dag", "run", *options, "x.dag"],
        cwd=folder,
        env=running.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    text = process.communicate(timeout=PATIENCE)[0]
    return process.returncode, text


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def lines(path: Path) -> int:
    return text_of(path).count("\n")


def status(running: Deployment, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [*GRIDBOT, "dag", "status", "--json", "x.dag"],
        cwd=folder, env=running.env, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


DIAMOND = """JOB A job.sub
JOB B job.sub
JOB C job.sub
JOB D job.sub
PARENT A CHILD B C
PARENT B C CHILD D
VARS B inputs="A.made"
VARS D inputs="B.made,C.made"
RETRY C 1
"""


def test_outputs_of_parents_are_inputs_of_children(running: Deployment, folder: Path) -> None:
    (folder / "x.dag").write_text(DIAMOND)
    code, text = ended(start(running, folder))
    assert code == 0, text
    assert (folder / "B.0.out").read_text() == "B 0\nof A\n"
    assert (folder / "D.0.out").read_text() == "D 0\nof B\nof C\n"
    assert status(running, folder)["nodes"]["done"] == 4
    with running.session() as session:
        newest = session.bots()[0]
        assert (newest.jobs_total, newest.document["state"]) == (4, "done")


def test_a_failed_run_goes_on_from_its_rescue_file(running: Deployment, folder: Path) -> None:
    (folder / "x.dag").write_text(f'{DIAMOND}VARS C code="3"\n')
    code, _ = ended(start(running, folder))
    assert (code, (folder / "C.1.out").exists()) == (1, True)
    assert "DONE A\nDONE B\nRETRY C 1\n" in (folder / "x.dag.rescue001").read_text()
    (folder / "job.sub").write_text(JOB.replace("$(code:0)", "0"))
    before = (folder / "A.0.out").stat().st_mtime_ns
    assert ended(start(running, folder))[0] == 0
    assert (folder / "D.0.out").exists()
    assert (folder / "A.0.out").stat().st_mtime_ns == before


def is_killed(process: subprocess.Popen[str], journal: Path, further: int) -> bool:
    """Kill a run when its journal has so many further lines; False if it ends before."""
    wanted = lines(journal) + further
    eventually(lambda: process.poll() is not None or lines(journal) >= wanted)
    if process.poll() is not None:
        return False
    process.kill()
    process.communicate()
    return True


def test_a_run_that_is_killed_again_and_again_runs_no_job_twice_and_leaves_the_same(
    running: Deployment, folder: Path
) -> None:
    calm, shaken = folder / "calm", folder / "shaken"
    calm.mkdir()
    shaken.mkdir()
    wanted = dag_kills.run(running, calm, 0, Random(7), others=False)
    found = dag_kills.run(running, shaken, 4, Random(7), others=False)
    assert (found.code, found.kills > 1, found.twice) == (0, True, []), found.said
    assert (found.files, found.jobs) == (wanted.files, wanted.jobs)
    assert len(wanted.files) == 2 * wanted.attempts - 4 + 2 * dag_kills.WIDTH


def told(running: Deployment, name: str) -> dict[str, Any]:
    """What a run of this name has told the server; {} before it has."""
    with running.session() as session:
        found = session.connection.get("/workflows")["workflows"]
    return next((dict(run) for run in found if run["name"] == name), {})


def test_the_console_shows_a_run_from_its_first_job_to_its_end_also_after_a_kill(
    running: Deployment, folder: Path
) -> None:
    (folder / "x.dag").write_text(f'{DIAMOND}VARS A code="0"\nSCRIPT POST B wait.sh\n')
    (folder / "wait.sh").write_text("#!/bin/sh\nuntil test -e go; do sleep 0.1; done\n")
    (folder / "wait.sh").chmod(0o755)
    process = start(running, folder, "-batch-name", "shown")
    eventually(lambda: told(running, "shown").get("nodes_done", 0) > 0)
    before = told(running, "shown")
    assert (before["name"], before["state"], before["nodes_total"]) == ("shown", "running", 4)
    process.kill()
    process.communicate()
    process = start(running, folder, "-batch-name", "shown")
    (folder / "go").touch()
    code, text = ended(process)
    after = told(running, "shown")
    assert (code, after["id"], after["state"], after["nodes_done"]) == (0, before["id"], "done", 4)
    assert f"{running.url}/workflows/{after['id']}" in text
    with running.session() as session:
        key = running.settings.operator_key_path.read_text().strip()
        page = logged_in(running.url, key).get(f"{running.url}/workflows/{after['id']}").text
        (bot,) = session.bots(group=after["group"])
    assert "Done: 4 nodes in" in page
    assert page.count('class="node is-done"') == 4
    assert bot.jobs_total == 4


def test_an_interrupted_run_is_told_and_stopped(running: Deployment, folder: Path) -> None:
    (folder / "job.sh").write_text("#!/bin/sh\nsleep 300\n")
    (folder / "x.dag").write_text("JOB A job.sub\nJOB B job.sub\nPARENT A CHILD B\n")
    process = start(running, folder)
    eventually(lambda: lines(folder / "x.dag.journal") >= 5, what="the start of A's job")
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 3
    assert status(running, folder)["state"] == "interrupted"
    process = start(running, folder)
    eventually(lambda: status(running, folder)["state"] == "running")
    told = subprocess.run(
        [*GRIDBOT, "dag", "stop", "x.dag"], cwd=folder, env=running.env, timeout=PATIENCE
    )
    assert (told.returncode, ended(process)[0]) == (0, 2)
    assert (folder / "x.dag.rescue001").exists()
    with running.session() as session:
        assert not session.bots(state="running")


def test_a_run_whose_bot_is_gone_ends_and_says_why(running: Deployment, folder: Path) -> None:
    (folder / "job.sh").write_text("#!/bin/sh\nsleep 300\n")
    (folder / "x.dag").write_text("JOB A job.sub\nJOB B job.sub\nPARENT A CHILD B\n")
    process = start(running, folder)
    assert is_killed(process, folder / "x.dag.journal", 5)
    with running.session() as session:
        bot = session.bot(session.bots()[0].id)
        bot.cancel()
        bot.delete()
        code, text = ended(start(running, folder))
        assert (code, f"BOT {bot.id}: " in text) == (1, True), text
    assert (folder / "x.dag.rescue001").exists()


def test_a_hold_script_runs_when_the_bot_of_its_node_is_held(
    running: Deployment, folder: Path
) -> None:
    running.kill_client("worker")
    (folder / "held.sh").write_text("#!/bin/sh\necho $2 > held\n")
    (folder / "held.sh").chmod(0o755)
    (folder / "x.dag").write_text("JOB A job.sub\nSCRIPT HOLD A held.sh of $NODE\n")
    process = start(running, folder)
    eventually(lambda: '"submitted"' in text_of(folder / "x.dag.journal"))
    with running.session() as session:
        bot = session.bot(session.bots()[0].id)
        bot.hold()
        eventually(lambda: text_of(folder / "held") == "A\n", what="the HOLD script")
        bot.resume()
        running.client("worker", "--cpus", "1")
    assert ended(process)[0] == 0
    log = text_of(folder / "x.dag.nodes.log")
    assert ("\n012 (" in log, "\n013 (" in log) == (True, True), log


def test_jobs_whose_bot_is_gone_end_when_they_are_to_be_cancelled(
    running: Deployment, folder: Path
) -> None:
    running.kill_client("worker")
    said: list[str] = []
    told: list[events.RunEvent] = []
    with running.session() as session:
        lots = NodeLots(session, "run", "a DAG", told.append, said.append)
        shape = Shape({"command": ["true"], "program": [], "outputs": ["stdout"]})
        lot = lots.lot(shape.key, lambda: submission_of(shape))
        jobs = [ShapedJob(Shape({}), {}, [], OutputPlace(str(folder)))] * 2
        assert lots.reserve(lot, "A", jobs) == 0
        lot.bot.append_each([(job.values, job.files) for job in jobs], 0)
        lot.bot.cancel()
        lot.bot.delete()
        assert lots.cancel("A", (0, 1))
        eventually(lambda: len(told) == 2, what="the ends of the jobs")
    removed = [(e.node, e.process) for e in told if isinstance(e, events.JobRemoved)]
    assert (removed, lots.cancel("A", (0, 1))) == ([("A", 0), ("A", 1)], False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("JOB A nowhere.sub\nJOB A job.sub\n", "x.dag:2:"),
        ("JOB A job.sub\nPARENT A CHILD B\n", "B is no node"),
        ("JOB A job.sub\nSCRIPT PRE A job.sub\n", "not executable"),
        ("JOB A gone.sub\n", "the program gone.sh does not exist"),
        ("SPLICE S nowhere.dag\n", "nowhere.dag"),
    ],
)
def test_what_cannot_end_well_is_refused_before_anything_begins(
    running: Deployment, folder: Path, text: str, said: str
) -> None:
    (folder / "gone.sub").write_text("executable = gone.sh\nqueue\n")
    (folder / "x.dag").write_text(text)
    before = {path.name for path in folder.iterdir()}
    code, told = ended(start(running, folder))
    assert (code, said in told) == (1, True), told
    assert {path.name for path in folder.iterdir()} == before


def loaded(name: str) -> ModuleType:
    """A runner of the corpus."""
    spec = importlib.util.spec_from_file_location(name, Path(CORPUS, f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# Where we differ from DAGMan on purpose; the table in client/gridbot/dag/README.md says why.
DIFFERENT = {"executable-missing", "script-not-executable", "remove"}


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not CORPUS, reason="set GRIDBOT_DAGS_CORPUS to the folder of the corpus")
def test_dags_of_the_corpus_end_as_they_do_with_htcondor(tmp_path: Path) -> None:
    runner = loaded("runner")
    cases = json.loads(Path(CORPUS, "corpus.json").read_text())
    found = {}
    for case in cases:
        seen = runner.compare(case, runner.run_case(case, dag_adapter.run, str(tmp_path)))
        if any(seen.values()):
            found[case["id"]] = {key: value for key, value in seen.items() if value}
    assert found.keys() <= DIFFERENT, found


@pytest.mark.skipif(not CORPUS, reason="set GRIDBOT_DAGS_CORPUS to the folder of the corpus")
def test_submit_descriptions_of_the_corpus_are_read_as_htcondor_does() -> None:
    runner = loaded("submit_runner")
    for case in json.loads(Path(CORPUS, "submit_corpus.json").read_text()):
        got, wanted = runner.run_case(case, dag_adapter.submit), case["expected"]
        assert got["error"] == wanted["error"], case["id"]
        assert runner.same(wanted.get("jobs"), got.get("jobs")), case["id"]
