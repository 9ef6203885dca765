"""Runs whose jobs are on this machine: a crash is a journal that ends early."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gridbot.api.session import Session
from gridbot.dag.journal import kept_path_of, path_of
from gridbot.dag.run.run import DagRun
from gridbot.dag.run.settings import RunOptions

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


@pytest.mark.parametrize("text", ["", '{"journal":'])
def test_a_journal_in_which_no_run_began_hinders_none(
    tmp_path: Path, run: Callable[[], int], text: str
) -> None:
    (tmp_path / "x.dag").write_text("JOB A good.sub\n")
    path_of(tmp_path / "x.dag").write_text(text)
    assert run() == 0
