"""Claims about the one file that pilots need, for all versions of Python that nodes may have."""

import json
import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging import tags
from packaging.utils import parse_wheel_filename
from tests.overlay_wheels import lay_wheels

from gridbot_overlay.pilot import start
from gridbot_overlay.pilot.artefact import Artefact, build
from gridbot_overlay.pilot.wheels import OWN_PYTHON, PYTHONS, glibc_of

# Lays an artefact out as a node would whose Python is of another version.
_UNPACK = """\
import runpy, sys
script, version, path, library = sys.argv[1:]
if version:
    sys.version_info = (*map(int, version.split(".")), 0, "final", 0)
start = runpy.run_path(script, run_name="start")
try:
    start["unpack"](path, library)
except start["UnfitNode"] as error:
    sys.exit(str(error))
"""


@pytest.fixture(scope="module")
def artefact(tmp_path_factory: pytest.TempPathFactory) -> Artefact:
    built = build(lay_wheels(tmp_path_factory.mktemp("overlay")))
    if built.missing and "CI" not in os.environ:
        pytest.skip(f"the wheels cannot be had: {dict(built.missing)}")
    return built


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))


def document(artefact: Artefact) -> dict[str, Any]:
    with zipfile.ZipFile(artefact.path) as archive:
        return dict(json.loads(archive.read("pilot.json")))


def unpacked(artefact: Artefact, library: Path, version: str = "") -> str:
    """Unpack; what was complained of."""
    command = [sys.executable, "-c", _UNPACK, start.__file__, version]
    done = subprocess.run(
        [*command, str(artefact.path), str(library)], stderr=subprocess.PIPE, text=True
    )
    return done.stderr.strip()


def test_each_version_gets_wheels_that_fit_it_and_each_wheel_is_there_once(
    artefact: Artefact,
) -> None:
    assert artefact.missing == {}
    found = document(artefact)
    assert set(found["pythons"]) >= set(PYTHONS)
    glibc = range(found["glibc"][1], 4, -1)
    machine = platform.machine()
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in glibc]
    for python, wheels in found["pythons"].items():
        version = tuple(map(int, python.split(".")))
        fitting = {*tags.cpython_tags(version, platforms=platforms)}
        fitting |= {*tags.compatible_tags(version, platforms=platforms)}
        assert [name for name in wheels if not parse_wheel_filename(name)[3] & fitting] == []
    with zipfile.ZipFile(artefact.path) as archive:
        assert sorted(archive.namelist()) == sorted(
            {"pilot.json"} | {name for wheels in found["pythons"].values() for name in wheels}
        )


@pytest.mark.parametrize("python", PYTHONS)
def test_a_node_lays_out_what_is_compiled_for_its_python_and_nothing_else(
    artefact: Artefact, tmp_path: Path, python: str
) -> None:
    assert unpacked(artefact, tmp_path, python) == ""
    compiled = {path.name.partition(".")[2] for path in tmp_path.rglob("_*.so")}
    assert f"cpython-{python.replace('.', '')}-{platform.machine()}-linux-gnu.so" in compiled
    assert len({name for name in compiled if name.startswith("cpython-")}) == 1
    assert (tmp_path / "gridbot_client" / "cli.py").exists()


@pytest.mark.parametrize("python", ["3.10", "3.99"])
def test_a_node_with_another_python_says_which_are_served(
    artefact: Artefact, tmp_path: Path, python: str
) -> None:
    said = unpacked(artefact, tmp_path / "library", python)
    assert "Python 3.11, 3.12, 3.13 and 3.14 on linux-" in said
    assert f"this is Python {python} on linux-" in said
    assert not (tmp_path / "library").exists()


@pytest.mark.usefixtures("offline")
def test_without_an_index_the_own_version_is_served_and_the_others_are_named(
    tmp_path: Path,
) -> None:
    artefact = build(tmp_path)
    assert set(artefact.missing) == set(PYTHONS) - {OWN_PYTHON}
    assert all("No matching distribution" in why for why in artefact.missing.values())
    assert f"for Python {OWN_PYTHON} on linux-" in str(artefact)
    library = tmp_path / "library"
    assert unpacked(artefact, library) == ""
    imports = "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]"
    imports += f" + [{str(library)!r}]; import gridbot_client.cli"
    base = getattr(sys, "_base_executable", sys.executable)
    assert subprocess.run([base, "-I", "-c", imports]).returncode == 0


@pytest.mark.usefixtures("offline")
def test_what_was_fetched_once_is_not_fetched_again(artefact: Artefact) -> None:
    again = build(artefact.path.parent)
    assert again == artefact


def test_a_wheel_that_was_cut_off_is_fetched_again(artefact: Artefact, tmp_path: Path) -> None:
    wheels = lay_wheels(tmp_path / "whole") / "wheels"
    mine = tmp_path / "mine" / "wheels"
    for folder in wheels.glob("3.*"):
        (mine / folder.name).mkdir(parents=True)
        for wheel in folder.iterdir():
            (mine / folder.name / wheel.name).write_bytes(wheel.read_bytes())
    [cut] = mine.glob("3.13-*/cffi-*.whl")
    cut.write_bytes(cut.read_bytes()[:1000])
    assert build(tmp_path / "mine").sha256 == artefact.sha256


@pytest.mark.parametrize(
    ("wheel", "glibc"),
    [
        ("click-8.1-py3-none-any.whl", (0, 0)),
        ("a-1-cp311-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", (2, 17)),
        ("a-1-1-cp312-cp312-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl", (2, 27)),
        ("a-1-cp36-abi3-manylinux2010_x86_64.manylinux_2_28_x86_64.whl", (2, 12)),
    ],
)
def test_a_wheels_name_tells_the_oldest_c_library_that_it_runs_with(
    wheel: str, glibc: tuple[int, int]
) -> None:
    assert glibc_of(wheel) == glibc
