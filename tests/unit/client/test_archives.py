"""Directories as archives: what is packed comes out again, and nothing hostile does."""

from __future__ import annotations

import gzip
import io
import os
import py_compile
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gridbot.api.errors import BadInput
from gridbot.api.packing import PackedFolder, pack
from gridbot.api.submission import Submission, prepare
from gridbot_client.protocol.archive import BadArchive
from gridbot_client.protocol.software import Unpacked
from gridbot_client.work.unpacking import unpack

AMPLE = Unpacked(1 << 20, 1000)


def made(top: Path) -> Path:
    """A directory with all that is odd and legal."""
    (top / "empty" / "below").mkdir(parents=True)
    (top / ".hidden").mkdir()
    (top / ".hidden" / ".f2py_f2cmap").write_text("dots")
    (top / "ünï ✓").write_text("unicode")
    (top / "-dash\n").write_bytes(b"\0\xff")
    (top / ("long" * 40)).write_text("long")
    (top / "prog").write_text("#!/bin/sh\n")
    (top / "prog").chmod(0o750)
    (top / "secret").write_text("for its owner")
    (top / "secret").chmod(0o600)
    (top / "link").symlink_to("prog")
    (top / "empty" / "up").symlink_to("../.hidden/.f2py_f2cmap")
    (top / "folder").symlink_to("empty/below")
    (top / "nowhere").symlink_to("empty/none")
    return top


def contents(top: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_dir():
            found[name] = None
        else:
            found[name] = (path.read_bytes(), bool(path.stat().st_mode & 0o100))
    return found


def written(packed: PackedFolder, path: Path) -> Path:
    path.write_bytes(packed.part(0, packed.ref.size))
    return path


def test_what_is_packed_comes_out_again(tmp_path: Path) -> None:
    source = made(tmp_path / "source")
    packed = pack(source, "deps")
    unpack(written(packed, tmp_path / "packed"), tmp_path / "there", packed.unpacked)
    assert contents(tmp_path / "there") == contents(source)
    assert packed.unpacked.entries == len(contents(source))


def test_the_same_content_is_the_same_archive(tmp_path: Path) -> None:
    one, other = made(tmp_path / "one"), made(tmp_path / "other")
    os.utime(other / "secret", (1, 1))
    (other / "secret").chmod(0o644)  # but for who may execute it, modes are no content
    assert pack(one, "d").ref.sha256 == pack(other, "d").ref.sha256
    (other / "secret").chmod(0o755)
    assert pack(one, "d").ref.sha256 != pack(other, "d").ref.sha256


def test_compiled_python_stays_valid(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "module.py").write_text("x = 1\n")
    os.utime(source / "module.py", (1_600_000_000, 1_600_000_000))
    py_compile.compile(str(source / "module.py"))
    packed = pack(source, "d")
    unpack(written(packed, tmp_path / "packed"), tmp_path / "there", packed.unpacked)
    assert (tmp_path / "there" / "module.py").stat().st_mtime == 1_600_000_000


def test_a_directory_is_one_input_with_all_that_is_in_it(tmp_path: Path) -> None:
    made(tmp_path / "deps")
    found = prepare(Submission(command="p", base=tmp_path, inputs=["deps"]))
    assert [ref["name"] for ref in found.body["inputs"]] == ["deps"]
    assert found.body["archives"]["deps"]["entries"] == len(contents(tmp_path / "deps"))


def test_a_program_in_a_directory_is_not_sent_twice(tmp_path: Path) -> None:
    made(tmp_path / "deps")
    found = prepare(Submission(command="./deps/prog deps/secret", base=tmp_path, inputs=["deps"]))
    assert [ref["name"] for ref in found.body["inputs"]] == ["deps"]
    assert found.notes == []


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        (["deps", "prog=deps/x"], "deps/x would lie in the directory deps"),
        (["deps=.deps"], "'.deps' is not a usable file name.*--input deps=NAME"),
        (["deps", "prog=deps"], "two inputs are named deps"),
    ],
)
def test_a_directory_beside_which_something_cannot_be_is_refused(
    tmp_path: Path, inputs: list[str], why: str
) -> None:
    (tmp_path / "deps").mkdir()
    (tmp_path / "prog").touch()
    with pytest.raises(BadInput, match=why):
        prepare(Submission(command="p", base=tmp_path, inputs=inputs))


def test_a_link_to_a_file_outside_is_packed_as_that_file(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("content")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "absolute").symlink_to(tmp_path / "outside")
    (tmp_path / "d" / "relative").symlink_to("../outside")
    packed = pack(tmp_path / "d", "d")
    unpack(written(packed, tmp_path / "packed"), tmp_path / "there", packed.unpacked)
    assert contents(tmp_path / "there") == dict.fromkeys(
        ("absolute", "relative"), (b"content", False)
    )


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda d: os.mkfifo(d / "pipe"), "pipe: it is neither a file, a directory nor a link"),
        (lambda d: (d / "up").symlink_to(".."), "up: it leads to a directory outside"),
        (lambda d: (d / "gone").symlink_to("/none"), "gone: No such file"),
        (lambda d: (d / os.fsdecode(b"\xff")).touch(), "its name is not UTF-8"),
    ],
)
def test_what_cannot_be_packed_is_named(
    tmp_path: Path, make: Callable[[Path], object], why: str
) -> None:
    (tmp_path / "d").mkdir()
    make(tmp_path / "d")
    with pytest.raises(BadInput, match=why):
        pack(tmp_path / "d", "d")


# --- hostile archives


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", **more: object) -> bytes:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, target
    for field, value in more.items():
        setattr(found, field, value)
    return found.tobuf(tarfile.GNU_FORMAT)


END = bytes(1024)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (entry("/etc/cron.d/x"), "no usable name"),
        (entry("../x"), "no usable name"),
        (entry("a/../../x"), "no usable name"),
        (entry("a//b"), "no usable name"),
        (entry("x", tarfile.SYMTYPE, "/etc/passwd"), "link out of the directory"),
        (entry("x", tarfile.SYMTYPE, "../x"), "link out of the directory"),
        (entry("a/x", tarfile.SYMTYPE, "../../x"), "link out of the directory"),
        (entry("x", tarfile.LNKTYPE, "/etc/passwd"), "no usable name"),
        (entry("x", tarfile.LNKTYPE, "../x"), "no usable name"),
        (entry("x", tarfile.LNKTYPE, "none"), "no file before"),
        (entry("d", tarfile.SYMTYPE, "e") + entry("x", tarfile.LNKTYPE, "d"), "no file before"),
        (entry("x", tarfile.CHRTYPE, devmajor=1, devminor=3), "neither a plain file"),
        (entry("x", tarfile.BLKTYPE), "neither a plain file"),
        (entry("x", tarfile.FIFOTYPE), "neither a plain file"),
        (entry("x", tarfile.GNUTYPE_SPARSE), "neither a plain file"),
        (entry("x") + entry("x"), "two entries 'x'"),
        (entry("x") + entry("./x"), "two entries 'x'"),
        (entry("d", tarfile.DIRTYPE) + entry("d/", tarfile.DIRTYPE), "two entries 'd'"),
        (entry("x") + entry("x/y"), "below 'x', which is no directory"),
        (entry("d", tarfile.SYMTYPE, "e") + entry("d/y"), "below 'd', which is no directory"),
        (
            entry("e", tarfile.DIRTYPE)
            + entry("e/a", tarfile.SYMTYPE, ".")
            + entry("b", tarfile.SYMTYPE, "e/a/../.."),
            "link out of the directory",
        ),
        (entry("x", size=2 << 20), "more than 1048576 bytes"),
        (entry("x", size=600 << 10) + bytes(600 << 10) + entry("y", size=600 << 10), "more than"),
        (entry("x", size=5000) + b"short", "no tar archive"),
        (b"".join(entry(f"f{n}") for n in range(1001)), "more than 1000 entries"),
        (entry("/".join("d" * 70)), "nested deeper"),
        (entry("n" * 300), "longer|more than 255"),
        (entry("x", tarfile.XHDTYPE, size=1 << 40), "header of|no tar archive"),
        (entry("x", tarfile.GNUTYPE_LONGNAME, size=1 << 20) + bytes(1 << 20), "header of"),
        (entry("x", tarfile.XHDTYPE) * 3000, "no tar archive|header"),
        (b"no tar archive at all" * 100, "no tar archive"),
        (entry("x"), "holds 1 entries of 0 bytes, and its manifest says"),
    ],
)
@pytest.mark.parametrize("is_packed", [False, True])
def test_a_hostile_archive_is_refused_and_leaves_nothing_outside(
    tmp_path: Path, content: bytes, why: str, is_packed: bool
) -> None:
    source = tmp_path / "archive"
    source.write_bytes(gzip.compress(content + END) if is_packed else content + END)
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(BadArchive, match=why):
        unpack(source, inside / "top", AMPLE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "inside"]
    assert sorted(path.name for path in inside.iterdir()) == ["top"]


def test_a_bomb_ends_at_what_the_manifest_says(tmp_path: Path) -> None:
    source = tmp_path / "bomb"
    with gzip.open(source, "wb") as file:
        file.write(entry("x", size=1 << 30))
        for _ in range(256):
            file.write(bytes(1 << 20))
    with pytest.raises(BadArchive, match="more than 1048576 bytes"):
        unpack(source, tmp_path / "top", AMPLE)
    assert not any(path.stat().st_size for path in (tmp_path / "top").iterdir())


def test_names_that_differ_in_case_alone_stay_apart(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(entry("x") + entry("X") + entry("d/X") + entry("D/x") + END)
    unpack(tmp_path / "archive", tmp_path / "top", Unpacked(0, 6))
    assert set(contents(tmp_path / "top")) == {"x", "X", "d", "d/X", "D", "D/x"}


def test_a_broken_gzip_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(entry("x", size=512) + os.urandom(512) + END)
    for broken in (whole[:300], whole[:5], whole[:30] + bytes(30) + whole[60:]):
        (tmp_path / "archive").write_bytes(broken)
        top = tmp_path / f"top-{len(list(tmp_path.iterdir()))}"
        with pytest.raises(BadArchive):
            unpack(tmp_path / "archive", top, Unpacked(512, 1))


def test_modes_that_give_rights_are_not_kept(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, mode in (("set-user-id", 0o6755), ("open", 0o666)):
            item = tarfile.TarInfo(name)
            item.mode = mode
            tar.addfile(item)
    (tmp_path / "archive").write_bytes(buffer.getvalue())
    unpack(tmp_path / "archive", tmp_path / "top", Unpacked(0, 2))
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (tmp_path / "top").iterdir()}
    assert modes == {"set-user-id": 0o755, "open": 0o644}
