"""What a job of Snakemake leaves behind: how it is collected there, and laid down here."""

from __future__ import annotations

import hashlib
import io
import os
import shlex
import subprocess
import tarfile
from pathlib import Path

import pytest

from gridbot.api.errors import BadInput
from gridbot.api.results import OutputFile
from snakemake_executor_plugin_gridbot.jobs import OUTPUTS, LeftFile, LeftFiles, name_of, unpack


def output(name: str, content: bytes) -> OutputFile:
    sha256 = hashlib.sha256(content).hexdigest()
    return OutputFile(name, sha256, len(content), "", None, _content=content)  # type: ignore[arg-type]


def test_what_a_job_left_is_collected_whatever_its_name_and_comes_to_its_place(
    tmp_path: Path,
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    odd = "it's $HOME; a b"
    left = LeftFiles(
        here,
        [
            LeftFile("a/plain", False), LeftFile(odd, False), LeftFile("link", False),
            LeftFile("folder", True), LeftFile("absent", False), LeftFile("no folder", True),
        ],
    )  # fmt: skip
    command = 'mkdir -p a folder/x; echo 1 > a/plain; echo 2 > "$1"; ln -s a/plain link; cd folder'
    script = left.script(f"set -- {shlex.quote(odd)}; {command}; echo 3 > x/file; exit 7")
    assert subprocess.run(["sh", "-c", script], cwd=there).returncode == 7
    for path in sorted((there / OUTPUTS).iterdir()):
        os.utime(path, (0, 0))
        left.save(output(f"{OUTPUTS}/{path.name}", path.read_bytes()))
    found = {str(path.relative_to(here)): path for path in here.rglob("*") if path.is_file()}
    assert {name: path.read_text() for name, path in found.items()} == {
        "a/plain": "1\n", odd: "2\n", "link": "1\n", "folder/x/file": "3\n",
    }  # fmt: skip
    assert min(path.stat().st_mtime for path in found.values()) > there.stat().st_mtime - 60


@pytest.mark.parametrize("name", ["stdout", f"{OUTPUTS}/9", f"{OUTPUTS}/x", f"{OUTPUTS}/../a"])
def test_outputs_that_nobody_expects_are_left_where_they_are(tmp_path: Path, name: str) -> None:
    left = LeftFiles(tmp_path, [LeftFile("a", False)])
    left.save(output(name, b"x"))
    assert (left.path(name), [*tmp_path.iterdir()]) == (None, [])


@pytest.mark.parametrize("kind", ["above", "absolute", "link", "device"])
def test_a_packed_folder_of_a_hostile_host_writes_nothing_outside(
    tmp_path: Path, kind: str
) -> None:
    member = tarfile.TarInfo(
        {"above": "../evil", "absolute": str(tmp_path / "evil")}.get(kind, "x")
    )
    if kind == "link":
        member.type, member.linkname = tarfile.SYMTYPE, str(tmp_path)
    elif kind == "device":
        member.type = tarfile.CHRTYPE
    else:
        member.size = 4
    with tarfile.open(tmp_path / "packed", "w") as packed:
        packed.addfile(member, io.BytesIO(b"evil"))
        through = tarfile.TarInfo("x/evil")
        through.size = 4
        packed.addfile(through, io.BytesIO(b"evil"))
    try:
        unpack(tmp_path / "packed", tmp_path / "to")
    except BadInput as error:
        assert str(tmp_path / "to") in str(error)
    assert not (tmp_path / "evil").exists()
    assert not any(path.is_symlink() for path in (tmp_path / "to").rglob("*"))


def test_files_outside_of_the_working_directory_are_refused() -> None:
    assert name_of("./a/../b") == "b"
    assert name_of(os.path.abspath("b")) == "b"
    for name in ("../b", "/etc/passwd"):
        with pytest.raises(BadInput, match=f"{name} is outside of the working directory"):
            name_of(name)


def test_a_folder_that_came_back_compressed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "zeros").write_bytes(bytes(1 << 20))
    with tarfile.open(tmp_path / "packed", "w:xz") as packed:
        packed.add(tmp_path / "zeros", "zeros")
    with pytest.raises(BadInput, match="no folder"):
        unpack(tmp_path / "packed", tmp_path / "to")
    assert not list((tmp_path / "to").iterdir())


@pytest.mark.parametrize(
    "names",
    [
        ("a", "a/b"),
        ("a/b", "a"),
        ("n" * 300,),
        ("/".join(["n" * 200] * 30),),
        ("nul\0",),
    ],
)
def test_a_folder_that_cannot_be_laid_down_is_refused_and_not_tried_for_ever(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    with tarfile.open(tmp_path / "packed", "w", format=tarfile.PAX_FORMAT) as packed:
        for name in names:
            member = tarfile.TarInfo("x")
            member.pax_headers = {"path": name}
            packed.addfile(member)
    with pytest.raises(BadInput, match="no folder"):
        unpack(tmp_path / "packed", tmp_path / "to")
