"""Claims about `gridbot policy compare`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gridbot_policies import examples
from gridbot_simulator.estimate import FIGURES

NO_COPIES = "ReplicationRequirements = false;\n"
OPTIONS = ("--jobs", "60", "--time", "5m..6m", "--hosts", "collaborative:12,volunteers:5")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = {"many": examples.text("p1"), "none": NO_COPIES, "same": NO_COPIES + "Rank = 1;\n"}
    for name, text in texts.items():
        (tmp_path / f"{name}.ad").write_text(text, encoding="utf-8")
    return tmp_path


def compare(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gridbot", "policy", "compare", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **environment},
    )


def test_what_many_replicas_cost_is_real_and_what_a_rank_of_one_bot_changes_is_nothing(
    folder: Path,
) -> None:
    found = compare(folder, "none.ad", "many.ad", "same.ad", *OPTIONS, "--json")
    assert found.returncode == 0, found.stderr
    first, many, same = json.loads(found.stdout)["policies"]
    assert first["against_first"] is None
    assert [len(policy["runs"]) for policy in (first, many, same)] == [8, 8, 8]
    for figure in ("replicas_percent", "cpu_hours", "discarded_percent"):
        difference = many["against_first"][figure]
        assert difference["verdict"] == "real" and difference["low"] > 0, figure
    assert {same["against_first"][figure]["mean"] for figure in FIGURES} == {0.0}


def test_the_same_seeds_give_the_same_bytes(folder: Path) -> None:
    one, other = (
        compare(folder, "none.ad", "many.ad", *OPTIONS, "--seeds", "2", "--json", PYTHONHASHSEED=n)
        for n in ("1", "2")
    )
    assert one.returncode == 0, one.stderr
    assert one.stdout == other.stdout


def test_people_see_each_figure_of_each_policy_and_that_two_seeds_are_too_few(
    folder: Path,
) -> None:
    found = compare(folder, "none.ad", "many.ad", *OPTIONS, "--seeds", "2")
    assert found.returncode == 0, found.stderr
    for title in ("makespan", "tail phase", "speculative replicas", "CPU time", "discarded"):
        assert title in found.stdout
    assert found.stdout.count("too few seeds") == 6
    assert "against none.ad" in found.stdout
    assert "many.ad: 2 seeds do not tell whether the makespan differs" in found.stdout


def test_a_policy_under_which_a_bot_does_not_end_is_not_comparable(folder: Path) -> None:
    (folder / "never.ad").write_text("JobRequirements = Host.Memory > 1000000;", encoding="utf-8")
    found = compare(folder, "none.ad", "never.ad", *OPTIONS, "--seeds", "1")
    assert found.returncode == 0, found.stderr
    assert "not comparable" in found.stdout
    assert "never.ad: 1 of 1 simulations did not end: no host had a replica" in found.stdout


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (("none.ad",), "between 2 and 20 policies can be compared"),
        (("none.ad", "none.ad"), "none.ad is given twice"),
        (("none.ad", "away.ad"), "'away.ad' does not exist"),
    ],
)
def test_what_cannot_be_compared_is_told(folder: Path, files: tuple[str, ...], told: str) -> None:
    found = compare(folder, *files, *OPTIONS)
    assert found.returncode == 2
    assert told in found.stderr
