"""Two commits beside each other: what the pairs prove, and where the other commit comes from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from scripts.benchmarks.compare import base_python, is_within, median_interval
from scripts.benchmarks.harness.installation import BenchFailed


@pytest.mark.parametrize(
    ("count", "interval"), [(5, None), (6, (1, 6)), (9, (2, 8)), (10, (2, 9)), (20, (6, 15))]
)
def test_the_interval_of_the_median_is_that_of_published_sign_test_tables(
    count: int, interval: tuple[int, int] | None
) -> None:
    values = [float(value) for value in range(count, 0, -1)]

    assert median_interval(values) == interval


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        (None, "undecided"),
        ((-3.0, -1.0), "yes"),
        ((-1.0, 2.0), "yes"),
        ((1.0, 3.0), "undecided"),
        ((2.0, 3.0), "undecided"),
        ((2.1, 3.0), "no"),
    ],
)
def test_a_change_is_judged_only_when_all_of_its_interval_is_on_one_side_of_the_limit(
    interval: tuple[float, float] | None, verdict: str
) -> None:
    assert is_within(interval, limit=2.0) == verdict


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository whose environments are the Pythons `old` and, at the second commit, `new`."""
    (tmp_path / "scripts").mkdir()
    git(tmp_path, "init", "--quiet")
    for name in ("old", "new"):
        (tmp_path / "scripts" / "environment.py").write_text(f"print('{name}')\n")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "--quiet", "--message", name)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True)


def test_the_base_is_installed_as_its_own_commit_says(checkout: Path) -> None:
    assert base_python(checkout, "HEAD~1") == "old"
    assert base_python(checkout, "HEAD") == "new"


def test_a_base_is_extracted_once(checkout: Path) -> None:
    base_python(checkout, "HEAD")
    (kept,) = (checkout / "demo-out" / "compare").iterdir()
    (kept / "scripts" / "environment.py").write_text("print('kept')\n")

    assert base_python(checkout, "HEAD") == "kept"


def test_a_name_without_a_commit_is_told(checkout: Path) -> None:
    with pytest.raises(BenchFailed, match="nothing names no commit"):
        base_python(checkout, "nothing")


def test_a_base_whose_environment_cannot_be_made_is_told(checkout: Path) -> None:
    (checkout / "scripts" / "environment.py").write_text("import sys\nsys.exit('no network')\n")
    git(checkout, "commit", "--quiet", "--all", "--message", "broken")

    with pytest.raises(BenchFailed, match="HEAD: its environment could not be made"):
        base_python(checkout, "HEAD")
