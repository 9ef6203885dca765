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
from gridbot_overlay.act.server import url_check
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


def test_a_grid_is_removed_with_its_tables_and_nothing_else(type_in: Type, folder: Path) -> None:
    for name in ("ice", "fire"):
        type_in("add", "slurm", name, "--cpus", "2", "--option", 'environment={A = "x"}')
    path = folder / "overlay.toml"
    path.write_text(f"# mine\n{path.read_text()}\n[server] # ours\nurl = 'http://127.0.0.1'\n")
    assert type_in("remove", "ice").exit_code == 0
    left = path.read_text()
    assert left.startswith("# mine\n") and "[server] # ours" in left
    assert list(tomllib.loads(left)["grids"]) == ["fire"]
    assert "unknown grid 'ice'" in str(type_in("remove", "ice").exception)


def test_a_grid_that_is_written_otherwise_is_left_to_its_operator(
    type_in: Type, folder: Path
) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "overlay.toml").write_text("[grids]\nice = {kind = 'slurm'}\n")
    assert "remove it by hand" in str(type_in("remove", "ice").exception)


def test_a_grid_with_live_pilots_is_not_removed(type_in: Type) -> None:
    type_in("add", "slurm", "ice", "--max-queued", "3")
    type_in("run", "--once")
    assert "ice has 3 live pilots; first gridbot overlay drain ice" in str(
        type_in("remove", "ice").exception
    )


def test_what_is_edited_is_kept_only_if_it_is_right(
    type_in: Type, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in("add", "slurm", "ice", "--cpus", "2")
    before = (folder / "overlay.toml").read_text()
    editor = tmp_path / "editor"
    monkeypatch.setenv("EDITOR", str(editor))
    for change, said in (("cpus = 0", "at least 1, not 0"), ("cpu = 3", "did you mean cpus?")):
        editor.write_text(f'#!/bin/sh\nsed -i "s/cpus = 2/{change}/" "$1"\n')
        editor.chmod(0o755)
        assert said in str(type_in("edit").exception)
        assert (folder / "overlay.toml").read_text() == before
    editor.write_text('#!/bin/sh\nsed -i "s/cpus = 2/cpus = 4/" "$1"\n')
    assert type_in("edit").exit_code == 0
    assert json.loads(type_in("list", "--json").stdout)["grids"][0]["cpus"] == 4


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:8765", "127.0.0.1 is each node itself"),
        ("http://0.0.0.0:8765", "0.0.0.0 is each node itself"),
        ("http://localhost:8765", "is each node itself"),
        ("http://no-such-name.invalid:8765", "has no address here"),
    ],
)
def test_a_url_that_nodes_cannot_use_fails_the_check(url: str, said: str) -> None:
    found = url_check(url)
    assert not found.is_good
    assert said in found.text
    assert "start the server with --url" in found.text


def test_a_url_that_other_machines_may_use_passes() -> None:
    assert url_check("http://192.0.2.7:8765").is_good


def test_the_url_is_checked_for_all_grids_but_those_on_this_machine(type_in: Type) -> None:
    type_in("add", "local", "here")
    assert "server's URL" not in type_in("check").stdout
    type_in("add", "slurm", "ice")
    assert "BAD  ice: server's URL for pilots: http://127.0.0.1:" in type_in("check").stdout


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


def test_the_server_is_told_which_grids_refuse_bots(type_in: Type, api: Api) -> None:
    type_in("add", "slurm", "tiny", "--memory", "50")
    assert type_in("run", "--once").exit_code == 0
    [why] = api.refusals["1"].values()
    assert "a replica needs 1 CPUs and 100 MB, a pilot has 1 and 50" in why


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
