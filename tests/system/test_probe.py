"""`gridbot overlay check --probe`: one short pilot examines its node, tells, and leaves."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.overlay_wheels import lay_wheels
from tests.system.batch_systems import Slurm, open_folder, slurm
from tests.system.deployment import Deployment
from tests.system.overlays import Overlay, overlay


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with open_folder("slurm") as folder, slurm(folder, nodes=1) as made:
        yield made


@pytest.fixture
def grids(running: Deployment, tmp_path: Path) -> Iterator[Overlay]:
    with overlay(running, tmp_path.name) as made:
        lay_wheels(made.folder)
        yield made


def probed(made: Overlay, *options: str, code: int = 0) -> dict[str, tuple[bool, str]]:
    """What a probe found, by what it looked at."""
    command = ("overlay", "check", "--probe", "--json", "--data", str(made.folder), *options)
    document, _ = json.JSONDecoder().raw_decode(made.server.run(*command, code=code))
    found: list[dict[str, Any]] = document["findings"]
    return {
        item["what"]: (item["is_good"], item["text"])
        for item in found
        if item["what"].startswith("probe")
    }


def assert_nothing_is_left(made: Overlay) -> None:
    """No pilot, no good key, and no host that joined."""
    query = "SELECT count(*) FROM token WHERE scope = 'pilot' AND revoked_at IS NULL"
    assert made.server.rows(query) == [(0,)]
    assert made.server.rows("SELECT count(*) FROM client WHERE pilot IS NOT NULL") == [(0,)]


def test_a_probe_tells_what_pilots_will_find(grids: Overlay) -> None:
    grids.add("local", "here", "--max-running", "1")
    found = probed(grids)
    looked_at = ("Python", "system", "disk", "memory", "test job", "sandbox", "server", "clock")
    assert found.keys() == {"probe", *(f"probe: {subject}" for subject in looked_at)}
    assert all(is_good for is_good, _ in found.values()), found
    assert found["probe: server"][1] == grids.server.url
    assert found["probe: sandbox"][1].startswith("level ")
    assert_nothing_is_left(grids)


def test_a_probe_of_slurm_names_its_node(grids: Overlay, cluster: Slurm) -> None:
    grids.add_slurm("s", cluster)
    found = probed(grids, code=1)  # other machines could not reach a server of this one alone
    assert found["probe"] == (True, "a pilot ran on n1")
    assert found["probe: test job"] == (True, "gives the right answer")
    assert cluster.run("squeue", "--noheader").strip() == ""
    assert_nothing_is_left(grids)


def test_a_node_that_cannot_be_examined_says_why(grids: Overlay) -> None:
    grids.add("local", "here", "--max-running", "1", "--setup", "module load fish/7")
    found = probed(grids, code=1)
    assert found.keys() == {"probe", "probe: its words"}
    is_good, words = found["probe: its words"]
    assert not is_good
    assert "module: not found" in words
    assert "the grid's setup ended with exit code 127" in words
    assert_nothing_is_left(grids)


def test_a_probe_that_does_not_start_in_time_is_cancelled(grids: Overlay, cluster: Slurm) -> None:
    grids.add_slurm("s", cluster, "--directive", "--hold")
    found = probed(grids, "--wait", "3s", code=1)
    text = "the pilot is held JobHeldUser after 3 s, and is cancelled"
    assert found == {"probe": (False, text)}
    assert cluster.run("squeue", "--noheader").strip() == ""
    assert_nothing_is_left(grids)
