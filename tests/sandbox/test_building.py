"""Environments of Python, built behind walls for strangers and for one's own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.sandbox.test_walls import Machine, Makes, base, best, machine  # noqa: F401
from tests.system.test_environments import wheel

from gridbot_client.protocol.messages import FileRef, Manifest
from gridbot_client.work.building import EnvironmentBuilder
from gridbot_client.work.processes import Census
from gridbot_client.work.runner import Runner, Stop
from gridbot_client.work.shared import CannotProvide

WHEEL = "tiny-1.0-py3-none-any.whl"


def built(client: Machine, source: Path, *, is_stranger: bool) -> Path:
    """Build an environment of the requirements in a folder; its directory."""
    files = [FileRef(path.name, "a" * 64, path.stat().st_size) for path in source.iterdir()]
    manifest = Manifest("a", ("tiny",), inputs=tuple(files), requirements="requirements.txt")
    top = client.folder / "made" / "tree"
    shutil.rmtree(top.parent, ignore_errors=True)
    top.parent.mkdir(parents=True)
    top.mkdir()

    def fetch(ref: FileRef, target: Path) -> None:
        shutil.copy(source / ref.name, target)

    runner = Runner(client.confinement, Census())
    EnvironmentBuilder(runner, is_stranger, fetch, Stop()).install(manifest, files, top)
    return top


@pytest.fixture(params=[0, 1, 2, 3])
def client(request: pytest.FixtureRequest, machine: Makes) -> Machine:  # noqa: F811
    made = machine(most=request.param)
    if made.sandbox.level < request.param:
        pytest.skip(made.sandbox.obstacle)
    return made


def test_an_environment_is_built_at_each_level(client: Machine, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels")
    is_filtered = client.sandbox.level == 1  # strangers change no modes there, as pip does
    for is_stranger in (False, True):
        if client.confinement.refusal(is_stranger=is_stranger):
            continue
        if is_stranger and is_filtered:
            with pytest.raises(CannotProvide, match="Operation not permitted"):
                built(client, tmp_path / "wheels", is_stranger=True)
            continue
        top = built(client, tmp_path / "wheels", is_stranger=is_stranger)
        assert (top / "bin" / "tiny").exists()
        assert list(top.parent.iterdir()) == [top]


def test_strangers_install_only_what_their_signature_covers(
    machine: Makes,  # noqa: F811
    tmp_path: Path,
) -> None:
    client = machine()
    requirements = wheel(tmp_path / "wheels")
    requirements.write_text(f"--no-index\n./{WHEEL}\n")
    built(client, tmp_path / "wheels", is_stranger=False)
    with pytest.raises(CannotProvide, match="--require-hashes mode") as error:
        built(client, tmp_path / "wheels", is_stranger=True)
    assert error.value.reason == "environment_failed"


def test_a_strangers_build_has_no_network_and_sees_none_of_the_owners_files(
    machine: Makes,  # noqa: F811
    tmp_path: Path,
) -> None:
    client = machine()
    requirements = wheel(tmp_path / "wheels")
    secret = client.base / "data"
    for line in (
        "--index-url http://127.0.0.1:9/\nnone==1 --hash=sha256:" + "a" * 64,
        f"-r {secret}",
    ):
        requirements.write_text(f"{line}\n")
        with pytest.raises(CannotProvide) as error:
            built(client, tmp_path / "wheels", is_stranger=True)
        assert "No matching distribution" in str(error.value) or "No such file" in str(error.value)
