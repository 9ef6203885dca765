"""Claims about `gridbot overlay …` as an operator types it."""

import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.overlay_cluster import Api, Cluster, serving
from tests.overlay_wheels import lay_wheels

from gridbot.api.errors import GridbotError
from gridbot_overlay.act.store import PilotStore, only_one
from gridbot_overlay.cli import overlay

Type = Callable[..., Result]


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as api:
        yield api


@pytest.fixture
def type_in(tmp_path: Path, api: Api, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Types a verb; the overlay's folder and the server are known from the environment."""
    monkeypatch.setenv("GRIDBOT_DATA", str(tmp_path))
    monkeypatch.setenv("GRIDBOT_SERVER", api.url)
    monkeypatch.setenv("GRIDBOT_KEY", "operator's key")
    cluster = Cluster(tmp_path)
    monkeypatch.setenv("PATH", f"{cluster.bin}:/usr/bin:/bin")
    lay_wheels(tmp_path / "overlay")
    return lambda *words: CliRunner().invoke(overlay, words)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "overlay"


def test_a_grid_that_is_added_is_listed_with_what_was_said(type_in: Type) -> None:
    words = ("--cpus", "2", "--walltime", "2h", "--budget", "10", "--option", 'logs="/shared"')
    assert type_in("add", "slurm", "big", *words, "--directive", "--partition=x").exit_code == 0
    assert type_in("add", "local", "here", "--dedicated").exit_code == 0
    grids = json.loads(type_in("list", "--json").stdout)["grids"]
    assert [(grid["name"], grid["kind"]) for grid in grids] == [("big", "slurm"), ("here", "local")]
    assert (grids[0]["cpus"], grids[0]["walltime"], grids[0]["budget"]) == (2, 7200, 10.0)
    assert [grid["dedicated"] for grid in grids] == [False, True]
    assert "big" in type_in("list").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("slurm", "a b"), "letters, digits"),
        (("slurm", "big", "--option", "nonsense=1"), "no option 'nonsense'"),
        (("slurm", "big", "--cpus", "-1"), "cpus must be a whole number of at least 1, not -1"),
        (("slurm", "big", "--cpus", "0"), "cpus must be a whole number of at least 1, not 0"),
        (("slurm", "big", "--option", "logs"), "expected KEY=VALUE"),
    ],
)
def test_a_wrong_grid_is_not_added(
    type_in: Type, folder: Path, words: tuple[str, ...], message: str
) -> None:
    found = type_in("add", *words)
    assert isinstance(found.exception, GridbotError)
    assert message in str(found.exception)
    assert not (folder / "overlay.toml").exists()


def test_a_zero_that_was_typed_is_not_taken_for_silence(type_in: Type) -> None:
    assert type_in("add", "local", "here", "--max-running", "0").exit_code == 0
    assert json.loads(type_in("list", "--json").stdout)["grids"][0]["max_running"] == 0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ('environment={A = "x", B = "1"}', {"A": "x", "B": "1"}),
        ("logs=/shared/logs", "/shared/logs"),
        ('logs="/shared/logs"', "/shared/logs"),
        ("logs='/shared'\nother=1", "'/shared'\nother=1"),
        ("through=['ssh', 'login']", ["ssh", "login"]),
    ],
)
def test_the_value_of_an_option_is_toml_or_a_text(
    type_in: Type, folder: Path, option: str, value: object
) -> None:
    assert type_in("add", "slurm", "big", "--option", option).exit_code == 0
    written = tomllib.loads((folder / "overlay.toml").read_text())
    assert written["grids"]["big"]["options"] == {option.partition("=")[0]: value}


def test_no_grid_is_added_twice(type_in: Type) -> None:
    type_in("add", "local", "here")
    assert "exists" in str(type_in("add", "local", "here").exception)


def test_an_overlay_without_a_grid_is_told_to_add_one(type_in: Type) -> None:
    assert type_in("check").stdout.endswith("next: gridbot overlay add KIND NAME\n")


def test_check_names_what_is_wrong_and_fails(type_in: Type) -> None:
    type_in("add", "local", "here", "--max-running", "1", "--python", "no-such-python")
    found = type_in("check", "--json")
    assert str(found.exception).endswith("checks failed")
    by_what = {item["what"]: item for item in json.loads(found.stdout)["findings"]}
    assert by_what["reachable with an operator's key"]["is_good"]
    assert "unfinished BOTs: 1" in by_what["reachable with an operator's key"]["text"]
    assert not by_what["python"]["is_good"]


def test_check_of_a_server_that_is_away_says_so(
    type_in: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDBOT_SERVER", "http://127.0.0.1:1")
    found = type_in("check")
    assert "BAD  server" in found.stdout
    assert "cannot reach http://127.0.0.1:1" in found.stdout


def test_a_dry_run_tells_what_and_why_and_leaves_no_trace(
    type_in: Type, api: Api, folder: Path
) -> None:
    type_in("add", "slurm", "ice", "--max-queued", "3")
    found = type_in("run", "--once", "--dry-run")
    assert found.exit_code == 0
    assert "ice: would submit 3 pilots: BOTs of ann need 3 more cores here" in found.stdout
    assert "ice: no more pilots: max_queued = 3" in found.stdout
    assert api.keys == {}
    assert PilotStore.open(folder).pilots("ice", 0) == []


def test_status_shows_pilots_by_state_and_why_there_are_no_more(
    type_in: Type, folder: Path
) -> None:
    type_in("add", "slurm", "ice", "--max-queued", "3")
    shown = type_in("status").stdout
    assert "no round of the constructor" in shown
    assert shown.startswith("the constructor is not running; to start it")
    assert type_in("run", "--once").exit_code == 0
    assert type_in("run", "--once").exit_code == 0
    grid = json.loads(type_in("status", "--json").stdout)["grids"][0]
    assert (grid["pilots"]["queued"], grid["pilots"]["running"]) == (3, 0)
    assert grid["why"] == "max_queued = 3"
    with only_one(folder):
        shown = type_in("status").stdout
        assert "the constructor is not running" not in shown
        assert "no more pilots: max_queued = 3" in shown


def test_status_shows_the_last_words_of_what_failed(type_in: Type, tmp_path: Path) -> None:
    (tmp_path / "bin/fault").write_text("sbatch refuse")
    type_in("add", "slurm", "ice")
    type_in("run", "--once")
    grid = json.loads(type_in("status", "--json").stdout)["grids"][0]
    assert "invalid partition specified" in grid["failing"][0]["reason"]
    assert "invalid partition specified" in type_in("status").stdout


def test_drain_and_resume_need_a_grid_that_there_is(type_in: Type, folder: Path) -> None:
    type_in("add", "slurm", "ice")
    assert "did you mean ice?" in str(type_in("drain", "icy").exception)
    assert type_in("drain", "ice", "--let-finish").exit_code == 0
    assert PilotStore.open(folder).grid("ice").drained == "finish"
    assert type_in("resume", "ice").exit_code == 0
    assert PilotStore.open(folder).grid("ice").drained == ""


def test_two_constructors_do_not_share_a_folder(type_in: Type, folder: Path) -> None:
    with only_one(folder):
        found = type_in("run", "--once")
    assert "another constructor runs" in str(found.exception)
