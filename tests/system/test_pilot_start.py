"""A pilot's job script on a node that has nothing but a bare Python."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.system.deployment import Deployment

from gridbot.connection import Connection
from gridbot_client.discovery import Endpoint
from gridbot_overlay.model import Grid, PilotShape
from gridbot_overlay.pilot.artefact import Artefact, build
from gridbot_overlay.pilot.script import render
from gridbot_overlay.server import Server

GRID = Grid(
    name="ice", kind="local", python=getattr(sys, "_base_executable", sys.executable),
    shape=PilotShape(cpus=1, memory_mb=600, walltime_seconds=120, idle_seconds=1),
)  # fmt: skip


@pytest.fixture(scope="module")
def artefact(tmp_path_factory: pytest.TempPathFactory) -> Artefact:
    return build(tmp_path_factory.mktemp("artefact"))


@pytest.fixture
def server(running: Deployment) -> Server:
    return Server(Connection(Endpoint(running.url, running.operator_key)))


def key_of(server: Server, running: Deployment) -> str:
    owner = json.loads(running.run("user", "list", "--json"))["owners"][0]["name"]
    return server.pilot_key("ice", [owner], 600.0, "gb1", 1).token


def pilot(grid: Grid, url: str, token: str, artefact: Artefact, tmp_path: Path) -> Any:
    """Run the script as a batch system does, with nothing of this environment."""
    scratch = tmp_path / "scratch"
    script = render(replace(grid, scratch=str(scratch)), url, token, artefact)
    env = {"PATH": "/usr/bin:/bin", "GRIDBOT_PILOT_TAG": "gb1", "GRIDBOT_PILOT_INDEX": "0"}
    return subprocess.run(
        ["/bin/sh"], input=script, env=env, cwd=tmp_path, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


def far_away(artefact: Artefact) -> Artefact:
    """The artefact as nodes see it that share no file system with the constructor."""
    return replace(artefact, path=Path("/nowhere") / artefact.path.name)


def test_a_bare_node_fetches_verifies_runs_and_leaves_nothing(
    running: Deployment, server: Server, artefact: Artefact, tmp_path: Path
) -> None:
    bot = running.submit("--range", "0:3", "--", "expr", "1", "+", "{}")
    server.offer(artefact)
    done = pilot(GRID, running.url, key_of(server, running), far_away(artefact), tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(running.outcomes(bot)) == {0, 1, 2}
    assert running.rows("SELECT grid, pilot FROM client") == [("ice", "gb1.0")]
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_node_without_python_says_so(
    running: Deployment, artefact: Artefact, tmp_path: Path
) -> None:
    grid = replace(GRID, python="/nowhere/python3")
    done = pilot(grid, running.url, "key", artefact, tmp_path)
    assert done.returncode == 3
    assert "has no /nowhere/python3: set python or setup of this grid" in done.stderr


def test_an_old_python_is_told_what_is_needed(
    running: Deployment, artefact: Artefact, tmp_path: Path
) -> None:
    old = tmp_path / "python3"
    base = GRID.python
    old.write_text(
        f"#!/bin/sh\n(echo 'import sys; sys.version_info = (3, 9, 2)'; cat) | {base} -\n"
    )
    old.chmod(0o755)
    grid = replace(GRID, python=str(old), shape=replace(GRID.shape, walltime_seconds=1))
    done = pilot(grid, running.url, "key", artefact, tmp_path)
    assert done.returncode == 3
    assert "3.11 or newer is needed: set `python` or `setup` of this grid" in done.stderr


def test_a_node_that_cannot_write_says_where(
    running: Deployment, artefact: Artefact, tmp_path: Path
) -> None:
    (tmp_path / "scratch").write_text("a file")
    grid = replace(GRID, shape=replace(GRID.shape, walltime_seconds=1))
    done = pilot(grid, running.url, "key", artefact, tmp_path)
    assert done.returncode == 3
    assert f"cannot write in {tmp_path}/scratch" in done.stderr


def test_another_artefact_than_was_promised_does_not_run(
    running: Deployment, server: Server, artefact: Artefact, tmp_path: Path
) -> None:
    server.offer(artefact)
    changed = replace(artefact, sha256="0" * 64)
    grid = replace(GRID, shape=replace(GRID.shape, walltime_seconds=1))
    done = pilot(grid, running.url, key_of(server, running), changed, tmp_path)
    assert done.returncode == 3
    assert "does not give the artefact" in done.stderr
    assert os.listdir(tmp_path / "scratch") == []
