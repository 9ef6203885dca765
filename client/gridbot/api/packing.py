"""Packs directories: the same content gives the same archive, so that it is not sent twice."""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import tarfile
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gridbot.api.errors import BadInput
from gridbot_client.protocol import archive
from gridbot_client.protocol.archive import BadArchive
from gridbot_client.protocol.messages import FileRef
from gridbot_client.protocol.software import MAX_ENTRIES, Unpacked

_LEVEL = 3  # of gzip: of a package of numpy's size two thirds of level 6's time, 3 % more bytes
_MOST_BYTES = 1 << 50
# Of a compiled Python file: a magic number, flags, and if they are 0 the time of its source
# (PEP 552).
_PYC_HEADER = 12


@dataclass(frozen=True)
class PackedFolder:
    """A directory on this machine as an archive, which goes with this object."""

    path: Path  # of the directory
    ref: FileRef
    unpacked: Unpacked
    _descriptor: int

    def __post_init__(self) -> None:
        weakref.finalize(self, os.close, self._descriptor)

    def part(self, offset: int, most: int) -> bytes:
        """What the next request brings of the archive, from `offset` on."""
        return os.pread(self._descriptor, min(most, self.ref.size - offset), offset)


def pack(folder: Path, name: str) -> PackedFolder:
    """Pack a directory as the input `name`.  Raises BadInput that names what cannot be packed."""
    descriptor, place = tempfile.mkstemp(prefix="gridbot-")
    os.unlink(place)
    try:
        with open(os.dup(descriptor), "w+b") as file:
            _write(folder, file)
            file.seek(0)
            unpacked = archive.survey(file, Unpacked(_MOST_BYTES, MAX_ENTRIES))
            file.seek(0)
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            return PackedFolder(folder, FileRef(name, sha256, file.tell()), unpacked, descriptor)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, BadArchive):
            raise BadInput(f"input {folder}: {error}") from None
        if isinstance(error, OSError):
            raise BadInput(f"input {error.filename or folder}: {error.strerror}") from None
        raise


def _write(folder: Path, file: IO[bytes]) -> None:
    with (
        gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed,
        tarfile.TarFile(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        times = _source_times(folder)
        for path in _below(folder):
            _add(tar, folder, path, times)


def _below(folder: Path) -> Iterator[Path]:
    """Yield all in a directory, parents first, in an order that only names decide."""
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _below(path)


def _add(tar: tarfile.TarFile, folder: Path, path: Path, times: Mapping[Path, int]) -> None:
    name = path.relative_to(folder).as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadInput(f"input {path!r}: its name is not UTF-8; rename it") from None
    entry = tarfile.TarInfo(name)
    if path.is_symlink() and _is_inside(folder, path):
        entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
        tar.addfile(entry)
        return
    found = path.stat()
    if stat.S_ISDIR(found.st_mode) and not path.is_symlink():
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(entry)
    elif stat.S_ISREG(found.st_mode):
        entry.mode = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
        entry.size, entry.mtime = found.st_size, times.get(path, 0)
        with path.open("rb") as content:
            tar.addfile(entry, content)
    elif path.is_symlink():
        raise BadInput(
            f"input {path}: it leads to a directory outside of {folder}; copy that there"
        )
    else:
        raise BadInput(f"input {path}: it is neither a file, a directory nor a link; remove it")


def _is_inside(folder: Path, link: Path) -> bool:
    """True for a link that leads, if anywhere, to what is in the directory, and says so."""
    if os.path.isabs(os.readlink(link)):
        return False
    inside, real = os.path.realpath(folder), os.path.realpath(link)
    depth = len(link.relative_to(folder).parts) - 1
    for part in os.readlink(link).split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            return False
    return real == inside or real.startswith(f"{inside}/")


def _source_times(folder: Path) -> dict[Path, int]:
    """Modification times of Python sources, as their compiled files name them.

    Other times are left out of archives.  These decide whether a compiled file is used.
    """
    found: dict[Path, int] = {}
    for path in sorted(folder.rglob("__pycache__/*.pyc")):
        with path.open("rb") as file:
            header = file.read(_PYC_HEADER)
        source = path.parent.parent / f"{path.name.partition('.')[0]}.py"
        if len(header) == _PYC_HEADER and header[4:8] == bytes(4):
            found[source] = int.from_bytes(header[8:12], "little")
    return found


def unpacked_size(path: Path) -> Unpacked:
    """What an archive holds.  Raises BadInput if clients would refuse it."""
    try:
        with path.open("rb") as file:
            return archive.survey(file, Unpacked(_MOST_BYTES, MAX_ENTRIES))
    except BadArchive as error:
        raise BadInput(f"archive {path}: {error}") from None
    except OSError as error:
        raise BadInput(f"archive {path}: {error.strerror}") from None


def is_conda_pack(path: Path) -> bool:
    """True for an archive that conda-pack has made: it brings `conda-unpack`, or `conda-meta`."""
    most = Unpacked(_MOST_BYTES, MAX_ENTRIES)
    try:
        with path.open("rb") as file, archive.opened(file, most) as members:
            return any(
                name == "bin/conda-unpack" or name.startswith("conda-meta/") for name, _ in members
            )
    except (BadArchive, OSError):
        return False
