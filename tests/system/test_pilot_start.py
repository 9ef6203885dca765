"""A pilot's job script on a node that has nothing but a bare Python."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from subprocess import DEVNULL

import pytest
from tests.overlay_wheels import lay_wheels
from tests.system.deployment import Deployment, eventually
from tests.system.relay import relay

from gridbot.api.connection import Connection
from gridbot_client.net.discovery import Endpoint
from gridbot_client.protocol.signatures import fingerprint
from gridbot_overlay.act.server import Server
from gridbot_overlay.decide.model import Grid, PilotShape
from gridbot_overlay.pilot.artefact import Artefact, build
from gridbot_overlay.pilot.pins import PilotPins
from gridbot_overlay.pilot.script import render
from gridbot_overlay.pilot.wheels import OWN_PYTHON, PYTHONS
from gridbot_server.signing.keys import public_bytes

GRID = Grid(
    name="ice", kind="local", python=getattr(sys, "_base_executable", sys.executable),
    shape=PilotShape(cpus=1, memory_mb=600, walltime_seconds=120, idle_seconds=1),
)  # fmt: skip


@pytest.fixture(scope="module")
def artefact(tmp_path_factory: pytest.TempPathFactory) -> Artefact:
    return build(lay_wheels(tmp_path_factory.mktemp("overlay")))


@pytest.fixture
def server(running: Deployment) -> Server:
    return Server(Connection(Endpoint(running.url, running.operator_key)))


def pythons() -> list[str]:
    """Interpreters for nodes: this one's, those on PATH, those that GRIDBOT_TEST_PYTHONS names."""
    named = os.environ.get("GRIDBOT_TEST_PYTHONS", "").split(":")
    others = (shutil.which(f"python{name}") or "" for name in PYTHONS if name != OWN_PYTHON)
    return [GRID.python, *(name for name in (*others, *named) if name and _starts(name))]


def _starts(python: str) -> bool:
    """Tell whether it is one: pyenv has names on PATH for what it does not start."""
    return subprocess.run([python, "-c", ""], stderr=DEVNULL).returncode == 0


def key_of(server: Server, running: Deployment, artefact: Artefact) -> str:
    owner = json.loads(running.run("user", "list", "--json"))["owners"][0]["name"]
    return server.pilot_key("ice", [owner], 600.0, "gb1", 1, artefact).token


NOBODY = PilotPins("0" * 64, ())


def pins_of(running: Deployment) -> PilotPins:
    """What the constructor of the user who started the server pins."""
    keys = running.settings.project_key_path, running.settings.signing_key_path
    project, owner = (fingerprint(public_bytes(path)) for path in keys)
    return PilotPins(project, (owner,))


def started(
    grid: Grid, url: str, token: str, artefact: Artefact, tmp_path: Path, pins: PilotPins = NOBODY
) -> subprocess.Popen[str]:
    """Start the script as a batch system does, with nothing of this environment."""
    scratch = tmp_path / "scratch"
    script = render(replace(grid, scratch=str(scratch)), url, token, artefact, pins, time.time())
    env = {"PATH": "/usr/bin:/bin", "GRIDBOT_PILOT_TAG": "gb1", "GRIDBOT_PILOT_INDEX": "0"}
    (tmp_path / "script").write_text(script)
    with (tmp_path / "script").open() as given:
        return subprocess.Popen(
            ["/bin/sh"], stdin=given, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )


def pilot(
    grid: Grid, url: str, token: str, artefact: Artefact, tmp_path: Path, pins: PilotPins = NOBODY
) -> tuple[int, str]:
    """Run the script to its end; its exit code and what it said."""
    process = started(grid, url, token, artefact, tmp_path, pins)
    _, said = process.communicate(timeout=120)
    return process.returncode, said


def far_away(artefact: Artefact) -> Artefact:
    """The artefact as nodes see it that share no file system with the constructor."""
    return replace(artefact, path=Path("/nowhere") / artefact.path.name)


@pytest.mark.parametrize("python", pythons())
def test_a_bare_node_fetches_verifies_runs_and_leaves_nothing(
    running: Deployment, server: Server, artefact: Artefact, tmp_path: Path, python: str
) -> None:
    bot = running.submit("--range", "0:3", "--", "expr", "1", "+", "{}")
    server.offer(artefact)
    grid = replace(GRID, python=python)
    code, said = pilot(
        grid, running.url, key_of(server, running, artefact), far_away(artefact), tmp_path,
        pins_of(running),
    )  # fmt: skip
    assert code == 0, said
    assert set(running.outcomes(bot)) == {0, 1, 2}
    ran = "SELECT DISTINCT grid, pilot FROM ended JOIN client ON client.id = client WHERE bot = %s"
    assert running.rows(ran, bot) == [("ice", "gb1.0")]
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_node_that_hands_no_path_to_jobs_is_no_worse(
    running: Deployment, artefact: Artefact, server: Server, tmp_path: Path
) -> None:
    python = Path(GRID.python)
    setup = ("unset PATH", f"PATH={python.parent}:/usr/bin:/bin")  # which is not exported then
    grid = replace(GRID, python=python.name, setup=setup)
    bot = running.submit("--range", "0:1", "--", "expr", "1", "+", "{}")
    key, pins = key_of(server, running, artefact), pins_of(running)
    code, said = pilot(grid, running.url, key, artefact, tmp_path, pins)
    assert code == 0, said
    assert set(running.outcomes(bot)) == {0}


def test_no_key_lies_in_the_folder_of_a_pilot_where_its_jobs_could_read_it(
    running: Deployment, server: Server, artefact: Artefact, tmp_path: Path
) -> None:
    gate = running.gate()
    bot = running.submit("--range", "0:1", "--", *gate.command())

    def content(file: Path) -> bytes:
        with suppress(FileNotFoundError):  # the client replaces its files meanwhile
            return file.read_bytes()
        return b""

    def hold_keys(*files: Path) -> bool:
        keys = running.rows("SELECT hash FROM token UNION ALL SELECT hash FROM client")
        words = (word for file in files for word in re.findall(rb"[\w.-]{16,}", content(file)))
        return not {bytes(key) for (key,) in keys}.isdisjoint(
            sha256(word).digest() for word in words
        )

    key, pins = key_of(server, running, artefact), pins_of(running)
    with started(GRID, running.url, key, artefact, tmp_path, pins) as process:
        try:
            eventually(lambda: running.leases(bot), what="a lease")
            own = [
                path for path in (tmp_path / "scratch").rglob("*") if "library" not in path.parts
            ]
            assert {"client", "slots"} <= {path.name for path in own}
            assert hold_keys(tmp_path / "script")  # that is how it would be found
            assert not hold_keys(*(path for path in own if path.is_file()))
        finally:
            gate.open()
            process.communicate(timeout=60)


def test_the_second_pilot_of_a_grid_copies_an_input_from_a_cache_that_no_job_sees(
    running: Deployment, server: Server, artefact: Artefact, tmp_path: Path
) -> None:
    content, shared = b"an input of many jobs\n" * 50_000, tmp_path / "shared"
    digest, table = sha256(content).hexdigest(), running.file("table", content)
    # Jobs may change what lies around it.
    allowed = f"export GRIDBOT_ALLOW_WRITE={tmp_path}"
    grid = replace(GRID, shared_cache=str(shared), setup=(allowed,))
    script = 'ls "$0"; (echo mine > "$0/mine"); sha256sum < table'
    asked: list[str] = []

    def note(path: str, body: bytes) -> bytes:
        asked.append(path)
        return body

    with relay(running.port) as network:
        network.spoil = note
        for _ in range(2):
            bot = running.submit("--input", f"{table}=table", "--", "sh", "-c", script, str(shared))
            key, pins = key_of(server, running, artefact), pins_of(running)
            code, said = pilot(grid, network.url, key, artefact, tmp_path, pins)
            assert code == 0, said
            with running.session() as session:
                (result,) = session.bot(bot).results()
            assert result.stdout == f"{digest}  -\n"
    assert asked.count(f"/files/{digest}") == 1
    assert [path.name for path in shared.iterdir()] == [digest]


def test_a_cache_that_comes_back_while_a_pilot_runs_is_seen_by_no_job(
    running: Deployment, server: Server, artefact: Artefact, tmp_path: Path
) -> None:
    (site := tmp_path / "site").touch()  # in place of a folder, so that the cache cannot be made
    shared, gate = site / "shared", running.gate()
    allowed = f"export GRIDBOT_ALLOW_WRITE={tmp_path}"
    grid = replace(GRID, shared_cache=str(shared), setup=(allowed,))
    before = running.submit("--range", "0:1", "--", *gate.command())
    key, pins = key_of(server, running, artefact), pins_of(running)
    with started(grid, running.url, key, artefact, tmp_path, pins) as process:
        try:
            eventually(lambda: running.leases(before), what="a lease")
            site.unlink()
            shared.mkdir(parents=True)
            (shared / "input").touch()
            script = 'ls "$0"; (echo mine > "$0/mine"); echo done'
            after = running.submit("--", "sh", "-c", script, str(shared))
        finally:
            gate.open()
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert f"--shared-cache {shared}: Not a directory; not used" in said
    with running.session() as session:
        (result,) = session.bot(after).results()
    assert result.stdout == "done\n"
    assert [path.name for path in shared.iterdir()] == ["input"]


def test_a_node_without_python_says_so(
    running: Deployment, artefact: Artefact, tmp_path: Path
) -> None:
    grid = replace(GRID, python="/nowhere/python3")
    code, said = pilot(grid, running.url, "key", artefact, tmp_path)
    assert code == 3
    assert "has no /nowhere/python3: set python or setup of this grid" in said


def test_a_line_of_the_set_up_that_fails_ends_the_pilot_with_its_words(
    running: Deployment, artefact: Artefact, tmp_path: Path
) -> None:
    setup = (
        "export SITE=here  # a comment",
        "test -e /nowhere && exit 9",
        "if test -e /nowhere; then",
        "    exit 9",
        "fi",
        "echo \"no module 'python/9' at $SITE\" >&2; (exit 7)",
        "touch reached",
    )
    code, said = pilot(replace(GRID, setup=setup), running.url, "key", artefact, tmp_path)
    assert code == 3
    assert "no module 'python/9' at here" in said
    assert "the grid's setup ended with exit code 7" in said
    assert not (tmp_path / "reached").exists()
    code, said = pilot(
        replace(GRID, setup=("set +e", *setup), python="/nowhere/python3"), running.url, "key",
        artefact, tmp_path,
    )  # fmt: skip
    assert (tmp_path / "reached").exists()
    assert (code, "has no /nowhere/python3" in said) == (3, True)


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
    code, said = pilot(grid, running.url, "key", artefact, tmp_path)
    assert code == 3
    assert "3.11 or newer is needed: set `python` or `setup` of this grid" in said


def test_a_node_that_cannot_write_says_where(
    running: Deployment, artefact: Artefact, tmp_path: Path
) -> None:
    (tmp_path / "scratch").write_text("a file")
    grid = replace(GRID, shape=replace(GRID.shape, walltime_seconds=1))
    code, said = pilot(grid, running.url, "key", artefact, tmp_path)
    assert code == 3
    assert f"cannot write in {tmp_path}/scratch" in said


def test_another_artefact_than_was_promised_does_not_run(
    running: Deployment, server: Server, artefact: Artefact, tmp_path: Path
) -> None:
    server.offer(artefact)
    changed = replace(artefact, sha256="0" * 64)
    grid = replace(GRID, shape=replace(GRID.shape, walltime_seconds=1))
    code, said = pilot(grid, running.url, key_of(server, running, artefact), changed, tmp_path)
    assert code == 3
    assert "does not give the artefact" in said
    assert os.listdir(tmp_path / "scratch") == []
