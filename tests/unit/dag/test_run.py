"""Runs whose jobs are on this machine: a crash is a journal that ends early."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.system.deployment import eventually

from gridbot.api.errors import BadInput, NotFound
from gridbot.api.session import Session
from gridbot.commands.dag import dag as dag_command
from gridbot.dag.journal import RunJournal, kept_path_of, path_of
from gridbot.dag.run.run import DagRun
from gridbot.dag.run.settings import RunOptions
from gridbot.dag.status import signal_run

PROGRAM = """#!/bin/sh
echo "$1 $2" >> begun
case "$1 $2" in
"0 0") exit "$3" ;;
"1 0") exec sleep 300 ;;
esac
"""


def no_server() -> Session:
    raise AssertionError("nothing of this DAG needs a server")


@pytest.fixture
def run(tmp_path: Path) -> Callable[[], int]:
    (tmp_path / "job.sh").write_text(PROGRAM)
    (tmp_path / "job.sh").chmod(0o755)
    for name, code, count in (("good", 0, 1), ("bad", 1, 1), ("two", 1, 2)):
        (tmp_path / f"{name}.sub").write_text(
            "universe = local\nexecutable = job.sh\n"
            f"arguments = $(Process) $(RETRY) {code}\nqueue {count}\n"
        )
    said: list[str] = []
    return lambda: DagRun(["x.dag"], RunOptions(), no_server, said.append, tmp_path).execute()


def cut(folder: Path, last: str) -> None:
    """Make it look as if the run had been killed after the first event of this name."""
    kept = kept_path_of(folder / "x.dag")
    lines = kept.read_text().splitlines(keepends=True)
    names = [json.loads(line).get("event") for line in lines]
    path_of(folder / "x.dag").write_text("".join(lines[: names.index(last) + 1]))
    kept.unlink()
    (folder / "begun").unlink()


PROVISIONER = "PROVISIONER P {\nuniverse = local\nexecutable = ready.sh\n%s\n}\nJOB A good.sub\n"
READY = """#!/bin/sh
%s
until test -e begun; do sleep 0.05; done  # the other node runs beside it
"""


@pytest.mark.parametrize(
    ("more", "says"),
    [("", 'touch "$GRIDBOT_DAG_READY"'), ("My.ProvisionerState = 2", "")],
    ids=["by a file", "by its description"],
)
def test_nodes_begin_when_the_provisioner_is_ready_and_it_goes_on_beside_them(
    tmp_path: Path, run: Callable[[], int], more: str, says: str
) -> None:
    (tmp_path / "ready.sh").write_text(READY % says)
    (tmp_path / "ready.sh").chmod(0o755)
    (tmp_path / "x.dag").write_text(PROVISIONER % more)
    assert run() == 0
    events = [
        (item["event"], item.get("node"))
        for item in map(json.loads, kept_path_of(tmp_path / "x.dag").read_text().splitlines()[2:])
    ]
    assert events.index(("submitted", "P")) < events.index(("submitted", "A"))
    assert events.index(("submitted", "A")) < events.index(("job_ended", "P"))


def test_a_provisioner_that_was_ready_is_ready_after_a_crash(
    tmp_path: Path, run: Callable[[], int]
) -> None:
    (tmp_path / "ready.sh").write_text(READY % 'touch "$GRIDBOT_DAG_READY"')
    (tmp_path / "ready.sh").chmod(0o755)
    (tmp_path / "x.dag").write_text(PROVISIONER % "")
    assert run() == 0
    cut(tmp_path, "provisioned")
    Path(f"{tmp_path}/x.dag.ready").unlink()
    (tmp_path / "ready.sh").write_text("#!/bin/sh\n")  # and says nothing when it runs again
    assert run() == 0
    assert (tmp_path / "begun").read_text() == "0 0\n"


def test_a_provisioner_that_says_nothing_or_is_several_jobs_ends_the_run(
    tmp_path: Path, run: Callable[[], int]
) -> None:
    (tmp_path / "ready.sh").write_text("#!/bin/sh\n")
    (tmp_path / "ready.sh").chmod(0o755)
    (tmp_path / "x.dag.ready").touch()  # is of an earlier run
    (tmp_path / "x.dag").write_text(PROVISIONER % "")
    assert run() == 1
    (tmp_path / "x.dag.rescue001").unlink()
    (tmp_path / "x.dag").write_text(PROVISIONER % "queue 2")
    with pytest.raises(BadInput, match=r"x.dag:1: the PROVISIONER P has 2 jobs, not one"):
        run()
    assert not (tmp_path / "begun").exists()


@pytest.mark.parametrize("last", ["began", "submitted"])
def test_what_a_crash_kept_from_its_start_is_started_once(
    tmp_path: Path, run: Callable[[], int], last: str
) -> None:
    (tmp_path / "x.dag").write_text("JOB A good.sub\nSUBDAG EXTERNAL B y.dag\n")
    (tmp_path / "y.dag").write_text("JOB Y good.sub\n")
    assert run() == 0
    cut(tmp_path, last)
    assert run() == 0
    assert (tmp_path / "begun").read_text() == "0 0\n" * 2


def test_a_cancelled_job_is_removed_once_and_spares_the_next_attempt(
    tmp_path: Path, run: Callable[[], int]
) -> None:
    (tmp_path / "x.dag").write_text("JOB A two.sub\nRETRY A 1\n")
    assert run() == 0
    found = map(json.loads, kept_path_of(tmp_path / "x.dag").read_text().splitlines())
    ends = [
        (item["event"], item["process"], item.get("code"))
        for item in found
        if item.get("event") in ("job_ended", "job_removed")
    ]
    assert ends[:2] == [("job_ended", 0, 1), ("job_removed", 1, None)]
    assert sorted(ends[2:]) == [("job_ended", 0, 0), ("job_ended", 1, 0)]


def test_a_crash_before_the_rescue_file_loses_it_not_and_after_it_makes_no_second(
    tmp_path: Path, run: Callable[[], int]
) -> None:
    (tmp_path / "x.dag").write_text("JOB A good.sub\nJOB B bad.sub\nPARENT A CHILD B\n")
    assert run() == 1
    kept = kept_path_of(tmp_path / "x.dag")
    rescue = tmp_path / "x.dag.rescue001"
    for is_written in (True, False):
        kept.rename(path_of(tmp_path / "x.dag"))
        if not is_written:
            rescue.unlink()
        assert run() == 1
        assert "DONE A\n" in rescue.read_text()
        assert [path.name for path in tmp_path.glob("*.rescue*")] == [rescue.name]


def test_a_failed_node_whose_children_are_all_weak_does_not_run_again(
    tmp_path: Path, run: Callable[[], int]
) -> None:
    (tmp_path / "x.dag").write_text(
        "JOB A bad.sub\nJOB B good.sub\nJOB C bad.sub\nWEAK PARENT A CHILD B\n"
    )
    assert run() == 1
    rescue = (tmp_path / "x.dag.rescue001").read_text()
    assert "Nodes premarked DONE: 1\n" in rescue
    assert "#   A,C,<ENDLIST>\n" in rescue
    assert [line for line in rescue.splitlines() if line.startswith("DONE")] == ["DONE A", "DONE B"]


@pytest.mark.parametrize(
    ("options", "again"),
    [
        (RunOptions(), ["1 0"]),
        (RunOptions(force=True), ["0 0", "1 0"]),
        (RunOptions(auto_rescue=False), ["0 0", "1 0"]),
        (RunOptions(rescue_from=1), ["1 0"]),
    ],
    ids=["usual", "force", "autorescue 0", "dorescuefrom 1"],
)
def test_which_rescue_file_counts_is_handed_on_to_sub_dags(
    tmp_path: Path, run: Callable[[], int], options: RunOptions, again: list[str]
) -> None:
    (tmp_path / "x.dag").write_text("SUBDAG EXTERNAL S y.dag\n")
    (tmp_path / "y.dag").write_text("JOB A one.sub\nJOB B two.sub\nPARENT A CHILD B\n")
    for number, name in enumerate(("one", "two")):
        (tmp_path / f"{name}.sub").write_text(
            "universe = local\nexecutable = job.sh\n"
            f"arguments = {number} $(RETRY) {number}\nqueue\n"
        )
    (tmp_path / "job.sh").write_text('#!/bin/sh\necho "$1 $2" >> begun\nexit $3\n')
    assert run() == 1
    (tmp_path / "begun").unlink()
    assert DagRun(["x.dag"], options, no_server, lambda _: None, tmp_path).execute() == 1
    assert (tmp_path / "begun").read_text().splitlines() == again


def test_paths_of_sub_dags_count_from_their_folders_if_those_of_the_dag_do(
    tmp_path: Path, run: Callable[[], int]
) -> None:
    assert run is not None  # which has made the programs
    (tmp_path / "below").mkdir()
    (tmp_path / "x.dag").write_text("SUBDAG EXTERNAL S below/y.dag\n")
    (tmp_path / "below/y.dag").write_text("JOB A good.sub\n")
    for name in ("good.sub", "job.sh"):
        (tmp_path / name).rename(tmp_path / "below" / name)
    options = RunOptions(use_dag_dir=True)
    assert DagRun(["x.dag"], options, no_server, lambda _: None, tmp_path).execute() == 0
    assert (tmp_path / "below/begun").exists()


def test_a_process_that_has_the_number_of_a_run_by_now_is_sent_no_signal(tmp_path: Path) -> None:
    (tmp_path / "x.dag").write_text("JOB A good.sub\n")
    stranger = subprocess.Popen(["sleep", "300"])
    try:
        held = RunJournal(path_of(tmp_path / "x.dag"))  # by us, who are that run's next process
        held.append([{"journal": 2}, {"event": "process", "pid": stranger.pid, "at": 0}])
        with pytest.raises(NotFound, match="has just begun or ended"):
            signal_run(tmp_path / "x.dag", signal.SIGTERM)
        assert stranger.poll() is None
        held.close()
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("text", ["", '{"journal":'])
def test_a_journal_in_which_no_run_began_hinders_none(
    tmp_path: Path, run: Callable[[], int], text: str
) -> None:
    (tmp_path / "x.dag").write_text("JOB A good.sub\n")
    path_of(tmp_path / "x.dag").write_text(text)
    assert run() == 0


ONE_AT_A_TIME = """#!/bin/sh
exec 9>> lock
flock -n 9 || echo beside >> beside
if [ -f begun ]; then exit 0; fi
echo begun > begun
sleep 300 &
wait
"""
COMMAND = [sys.executable, "-m", "gridbot", "dag"]


@pytest.mark.parametrize("what", ["PRE", "POST", "local job"])
def test_a_program_of_a_killed_run_has_ended_before_it_begins_again(
    tmp_path: Path, what: str
) -> None:
    (tmp_path / "one.sh").write_text(ONE_AT_A_TIME)
    (tmp_path / "one.sh").chmod(0o755)
    (tmp_path / "one.sub").write_text("universe = local\nexecutable = one.sh\nqueue\n")
    text = "JOB A one.sub\n" if what == "local job" else f"JOB A x NOOP\nSCRIPT {what} A one.sh\n"
    (tmp_path / "x.dag").write_text(text)
    process = subprocess.Popen([*COMMAND, "run", "x.dag"], cwd=tmp_path)
    eventually(lambda: (tmp_path / "begun").exists(), what="the first program")
    process.kill()
    process.wait()
    assert subprocess.run([*COMMAND, "run", "x.dag"], cwd=tmp_path, timeout=100).returncode == 0
    assert not (tmp_path / "beside").exists()


@pytest.mark.parametrize("how", [["run", "--force"], ["rescue"]])
def test_nothing_stays_at_work_of_a_run_that_nobody_goes_on_with(
    tmp_path: Path, how: list[str]
) -> None:
    (tmp_path / "one.sh").write_text(ONE_AT_A_TIME)
    (tmp_path / "one.sh").chmod(0o755)
    (tmp_path / "x.dag").write_text("JOB A x NOOP\nSCRIPT PRE A one.sh\n")
    process = subprocess.Popen([*COMMAND, "run", "x.dag"], cwd=tmp_path)
    eventually(lambda: (tmp_path / "begun").exists(), what="the first program")
    process.kill()
    process.wait()
    assert subprocess.run([*COMMAND, *how, "x.dag"], cwd=tmp_path, timeout=100).returncode == 0
    lock = subprocess.run(["flock", "-n", tmp_path / "lock", "true"], timeout=100)
    assert (lock.returncode, (tmp_path / "beside").exists()) == (0, False)


DEFERRED = """#!/bin/sh
echo begun >> begun
exit 3
"""


@pytest.mark.parametrize(("passed", "begins"), [(0.0, 0), (7200.0, 1)])
def test_a_deferred_script_waits_for_its_time_also_after_a_crash(
    tmp_path: Path, passed: float, begins: int
) -> None:
    (tmp_path / "defer.sh").write_text(DEFERRED)
    (tmp_path / "defer.sh").chmod(0o755)
    (tmp_path / "x.dag").write_text("JOB A x NOOP\nSCRIPT DEFER 3 3600 PRE A defer.sh\n")
    one = DagRun(["x.dag"], RunOptions(), no_server, print, tmp_path)
    journal = path_of(tmp_path / "x.dag")
    process = subprocess.Popen([*COMMAND, "run", "x.dag"], cwd=tmp_path)
    eventually(lambda: "script_ended" in (journal.read_text() if journal.exists() else ""))
    process.kill()
    process.wait()
    (tmp_path / "begun").unlink()
    documents = [json.loads(line) for line in journal.read_text().splitlines()]
    for document in documents:
        document["at"] -= passed
    journal.write_text("".join(f"{json.dumps(document)}\n" for document in documents))
    if begins:
        (tmp_path / "defer.sh").write_text(DEFERRED.replace("exit 3", "exit 0"))
        assert one.execute() == 0
    else:
        one.remove()
        assert one.execute() == 2
    assert (tmp_path / "begun").exists() == bool(begins)


def test_options_of_condor_submit_dag_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "say.sh").write_text('#!/bin/sh\necho "$COLOUR" > said\n')
    (tmp_path / "say.sh").chmod(0o755)
    (tmp_path / "x.dag").write_text("JOB A x NOOP\nSCRIPT PRE A say.sh\n")

    def told(*options: str) -> tuple[int, str]:
        done = CliRunner().invoke(dag_command, ["run", *options, "x.dag"])
        return done.exit_code, done.output

    code, text = told("-no_submit")
    assert (code, (tmp_path / "said").exists()) == (0, False), text
    assert told("-dorecovery")[0] == 1
    assert told("-insert_env", "COLOUR")[0] == 1
    ignored = ("-verbose", "-import_env", "-notification", "never", "-append", "+X = 1")
    code, text = told("-insert_env", "COLOUR=blue;SIZE=2", "-maxhold", "3", *ignored)
    assert (code, (tmp_path / "said").read_text()) == (0, "blue\n"), text
