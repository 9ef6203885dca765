"""Archives of directories: tar files, perhaps with gzip, read with bounds on all they may hold.

They come from strangers.  What is not a plain file, a directory or a link is refused, and so is any
name outside of the directory, any name twice, and any more than the manifest says.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, BinaryIO, cast

from gridbot_client.protocol.software import Unpacked

MAX_PATH_BYTES = 1024
MAX_DEPTH = 64
_MAX_PART_BYTES = 255
MOST_READ_BYTES = 64 << 10  # at once; tarfile would read as many as a header says
_ENTRY_BYTES = 4 << 10  # of headers, for each entry
_GZIP_MAGIC = b"\x1f\x8b"
_BLOCK_BYTES = 64 << 10


class BadArchive(Exception):
    """The archive is not one, or holds what it must not; the message names it."""


class Members:
    """The entries of an archive, in order, checked; `content` is of the last one."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._kinds: dict[str, bytes] = {}  # by name; parents that had no entry are directories

    def __iter__(self) -> Iterator[tuple[str, tarfile.TarInfo]]:
        """Yield name and entry; the top itself has none.  Raises BadArchive."""
        while (found := self._tar.next()) is not None:
            self._tar.members.clear()  # type: ignore[attr-defined]  # it would keep them all
            name = _safe_name(found.name)
            if name:
                self._take(name, found)
                yield name, found
            elif not found.isdir():
                raise BadArchive(f"its entry {found.name!r} has no usable name")

    def content(self, found: tarfile.TarInfo) -> IO[bytes]:
        """The content of a file that was just yielded."""
        return cast(IO[bytes], self._tar.extractfile(found))

    def _take(self, name: str, found: tarfile.TarInfo) -> None:
        if found.issparse() or not (
            found.isreg() or found.isdir() or found.issym() or found.islnk()
        ):
            raise BadArchive(f"its entry {name!r} is neither a plain file, a directory nor a link")
        if found.size < 0:
            raise BadArchive(f"its entry {name!r} has a size of {found.size}")
        before = self._kinds.get(name)
        if before is not None and not (before == b"" and found.isdir()):
            raise BadArchive(f"it has two entries {name!r}")
        parts = name.split("/")[:-1]
        for depth in range(len(parts), 0, -1):
            parent = "/".join(parts[:depth])
            kind = self._kinds.setdefault(parent, b"")
            if kind not in (b"", tarfile.DIRTYPE):
                raise BadArchive(f"its entry {name!r} lies below {parent!r}, which is no directory")
        self._kinds[name] = tarfile.DIRTYPE if found.isdir() else found.type
        if found.issym():
            _check_target(name, found.linkname)
        elif found.islnk():
            found.linkname = _safe_name(found.linkname)
            if self._kinds.get(found.linkname) not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                raise BadArchive(
                    f"its entry {name!r} is a link to {found.linkname!r}, no file before"
                )

    @property
    def count(self) -> int:
        """Number of files, directories and links that have been seen, also those without entry."""
        return len(self._kinds)


@contextmanager
def opened(file: BinaryIO, most: Unpacked) -> Iterator[Members]:
    """The entries of an archive that holds no more than `most`.  Raises BadArchive, also later."""
    magic = file.read(2)
    file.seek(0)
    source = gzip.GzipFile(fileobj=file, mode="rb") if magic == _GZIP_MAGIC else file
    bounded = _Bounded(cast(BinaryIO, source), most.bytes + (most.entries + 16) * _ENTRY_BYTES)
    try:
        with tarfile.TarFile(fileobj=cast(IO[bytes], bounded), mode="r", encoding="utf-8") as tar:
            yield Members(tar)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, ValueError) as error:
        raise BadArchive(f"it is no tar archive: {error}") from None
    except RecursionError:
        raise BadArchive("it is no tar archive: too many headers for one entry") from None


def survey(file: BinaryIO, most: Unpacked) -> Unpacked:
    """What an archive holds, which is no more than `most`.  Raises BadArchive."""
    size = 0
    with opened(file, most) as members:
        for _, found in members:
            size += found.size if found.isreg() else 0
            check(size, members, most)
        return Unpacked(size, members.count)


def check(size: int, members: Members, most: Unpacked) -> None:
    """Raise BadArchive if what has been seen is more than the manifest says."""
    if size > most.bytes:
        raise BadArchive(f"it holds more than {most.bytes} bytes")
    if members.count > most.entries:
        raise BadArchive(f"it holds more than {most.entries} entries")


def _safe_name(name: str) -> str:
    """The name below the top, without `./` and final slash; "" is the top.  Raises BadArchive."""
    parts = [part for part in name.split("/") if part != "."]
    while parts and parts[-1] == "":
        parts.pop()
    if any(part in ("", "..") for part in parts) or "\0" in name:
        raise BadArchive(f"its entry {name!r} has no usable name")
    _check_path("/".join(parts))
    return "/".join(parts)


def _check_path(path: str) -> None:
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise BadArchive(f"its entry {path!r} has a name that is not UTF-8") from None
    longest = max(len(part.encode()) for part in path.split("/"))
    if size > MAX_PATH_BYTES or longest > _MAX_PART_BYTES or path.count("/") >= MAX_DEPTH:
        raise BadArchive(
            f"its entry {path[:40]!r}… has a name of more than {_MAX_PART_BYTES} bytes, a path of"
            f" more than {MAX_PATH_BYTES}, or is nested deeper than {MAX_DEPTH}"
        )


def _check_target(name: str, target: str) -> None:
    """Refuse a link that leads out by its own words; links through links are checked on disk."""
    depth = name.count("/")
    _check_path(target)
    for part in target.split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0 or target.startswith("/") or not target or "\0" in target:
            raise BadArchive(f"its entry {name!r} is a link out of the directory, to {target!r}")


class _Bounded:
    """A file to be read forward, up to so many bytes, and so many at once."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file, self._most, self._at = file, most, 0

    def tell(self) -> int:
        return self._at

    def seek(self, to: int) -> None:
        if to < self._at:
            raise BadArchive("it is no tar archive: it would have to be read backwards")
        while self._at < to and self.read(min(_BLOCK_BYTES, to - self._at)):
            pass

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MOST_READ_BYTES:
            raise BadArchive(f"it has a header of {size} bytes, at most {MOST_READ_BYTES}")
        content = self._file.read(size)
        self._at += len(content)
        if self._at > self._most:
            raise BadArchive(f"it holds more than {self._most} bytes, headers included")
        return content
