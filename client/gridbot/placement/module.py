"""Copies one file between all that fsspec reaches; a program of its own, so that it can be ended.

It writes beside the destination (`NAME.HASH.part`), compares size and SHA-256, and renames: who
looks sees the whole file or none.  Where it can append it goes on from what an earlier attempt
wrote; the part's name says from which content.  An object store shows a file when it is whole, so
it needs no part.

A copy that is done is *pushed*, in Kangaroo's word: on this machine its content and the names that
lead to it are synced, elsewhere the server has said that it is whole.  Until then a crash leaves a
part at most.  What was written before the machine crashed may be anything, so a part is continued
only by an attempt of the same boot, unless a SHA-256 is demanded that will tell.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gridbot.placement.durable import sync_names
from gridbot.placement.filesystems import local_path, opened, reading
from gridbot.placement.places import FILE, DataPlace, place_of
from gridbot_client.boot import boot_id

RESULT = "GRIDBOT_PLACEMENT_RESULT"  # the file that says that it is done
_CHUNK = 1 << 20
# By which file systems tell one version of a file from the next.
_VERSIONS = (
    "mtime", "modified", "modify", "ETag", "etag", "LastModified", "Last-Modified",
)  # fmt: skip
_APPENDS = (FILE, "sftp")
_WHOLE_AT_ONCE = ("s3", "s3a", "gs", "gcs", "abfs", "az")
_PR_SET_PDEATHSIG = 1
_CONTENT_NAME_DIGITS = 12


class NotCopied(Exception):
    """Why a file was not copied."""


class WrongContent(NotCopied):
    """The source has another content than the one that is demanded."""


@dataclass(frozen=True)
class Copied:
    """Size and SHA-256 of a file that is at its destination."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class _Source:
    """A file that is read, and what it must be."""

    scheme: str
    system: Any
    path: str
    size: int | None
    sha256: str

    def poured(self, writer: Any, begun: Iterable[bytes] = ()) -> Copied:
        """Write what follows after `begun`.  Raises NotCopied if it is not what it must be."""
        seen, count = hashlib.sha256(), 0
        for chunk in begun:
            seen.update(chunk)
            count += len(chunk)
        with reading(self.scheme, self.system, self.path, count) as reader:
            while chunk := reader.read(_CHUNK):
                writer.write(chunk)
                seen.update(chunk)
                count += len(chunk)
        if self.size is not None and count != self.size:
            raise NotCopied(f"{count} bytes came of {self.size}")
        if self.sha256 not in ("", seen.hexdigest()):
            raise WrongContent(f"SHA-256 is {seen.hexdigest()}, not {self.sha256}")
        return Copied(count, seen.hexdigest())


def copy(source: DataPlace, destination: DataPlace, sha256: str = "") -> Copied:
    """Copy a file.  Raises NotCopied, OSError, ValueError or what a file system raises."""
    system, path = opened(source)
    about = system.info(path)
    reader = _Source(source.scheme, system, path, about.get("size"), sha256)
    here, name = opened(destination)
    if destination.scheme in _WHOLE_AT_ONCE:
        return _committed(reader, here, name)
    version = _content_name(source, about, sha256)
    part = f"{name}.{version or 'new'}.part"
    _make_folder(here, name)
    try:
        copied = _continued(reader, here, part, destination.scheme if version else "")
    except WrongContent:
        with suppress(Exception):  # nothing of it can be used; the error is another
            here.rm_file(part)
        raise
    _check(here, part, copied)
    if destination.scheme == FILE:
        _keep(part, name)
        discard(destination)
    else:
        _rename(here, part, name)
    return copied


def _committed(reader: _Source, here: Any, name: str) -> Copied:
    """Write an object, which shows only when it is committed."""
    writer = here.open(name, "wb", autocommit=False)
    try:
        copied = reader.poured(writer)
        writer.close()
    except BaseException:
        with suppress(Exception):
            writer.discard()
        raise
    writer.commit()
    _check(here, name, copied)
    return copied


def _continued(reader: _Source, here: Any, part: str, scheme: str) -> Copied:
    """Write a part, or what an earlier attempt has left to do of it."""
    done = _begun(here, part, scheme, reader.size)
    with here.open(part, "ab" if done else "wb") as writer:
        return reader.poured(writer, _chunks(here, part) if done else ())


def _chunks(system: Any, name: str) -> Iterator[bytes]:
    with system.open(name, "rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _content_name(source: DataPlace, about: Any, sha256: str) -> str:
    """What names a content: its hash, or what its file system says of this version; else "".

    A version is good for this boot only: nothing tells whether a part survived a power cut.
    """
    version = [str(about[key]) for key in _VERSIONS if about.get(key) is not None]
    if not sha256 and not version:
        return ""
    text = sha256 or f"{source.url} {about.get('size')} {version} {boot_id()}"
    return hashlib.sha256(text.encode()).hexdigest()[:_CONTENT_NAME_DIGITS]


def _make_folder(system: Any, name: str) -> None:
    folder = os.path.dirname(name)
    if folder.strip("/"):
        with suppress(FileExistsError, NotImplementedError):
            system.makedirs(folder, exist_ok=True)


def _begun(system: Any, part: str, scheme: str, size: int | None) -> int:
    """Bytes of an earlier attempt from which this one goes on."""
    if scheme not in _APPENDS or size is None:
        return 0
    with suppress(FileNotFoundError):
        found = int(system.info(part)["size"])
        return found if found <= size else 0
    return 0


def _check(system: Any, name: str, copied: Copied) -> None:
    system.invalidate_cache()
    size = system.info(name).get("size")
    if size is not None and int(size) != copied.bytes:
        raise NotCopied(f"{size} bytes arrived of {copied.bytes}")


def _keep(part: str, name: str) -> None:
    """Rename a local file so that a crash of the machine loses neither name nor content."""
    with open(part, "rb") as file:
        os.fsync(file.fileno())
    os.replace(part, name)
    sync_names(Path(name))


def _rename(system: Any, part: str, name: str) -> None:
    """Rename; where a server does not replace, what was there goes first."""
    try:
        system.mv(part, name)
    except Exception:
        if not system.exists(name):
            raise
        system.rm_file(name)
        system.mv(part, name)


def _die_with_parent(parent: int) -> None:
    """Be killed when the queue's process is, so that its successor copies alone."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent and os.getppid() != parent:
        sys.exit("the queue's process is gone")


def main() -> None:
    """Copy what standard input says; exit with 1 and a line on standard output that says why not.

    It is a JSON list: URLs of source and destination, and the SHA-256 that is demanded or "".
    """
    _die_with_parent(int(os.environ.get("GRIDBOT_PLACEMENT_PARENT", "0")))
    places: list[DataPlace] = []
    try:
        source, destination, sha256 = json.load(sys.stdin)
        places += place_of(source)[0], place_of(destination)[0]
        copied = copy(places[0], places[1], sha256)
    except ImportError as error:
        print(f"{error.name} is not installed: pip install 'gridbot[data]'")
        sys.exit(1)
    except Exception as error:  # file systems raise what their libraries do
        print(_line(error, places))
        sys.exit(1)
    if result := os.environ.get(RESULT):
        _tell(Path(result), copied)


def _line(error: BaseException, places: Sequence[DataPlace]) -> str:
    """One line about an error, without passwords: libraries put URLs into their messages."""
    text = str(error) or type(error).__name__
    for place in places:
        text = text.replace(place.url, place.shown)
    return f"{type(error).__name__}: {text.splitlines()[0][:500]}"


def discard(destination: DataPlace) -> None:
    """Remove parts of a copy that will not go on; those on this machine, best effort."""
    if destination.scheme == FILE:
        name = glob.escape(local_path(destination))
        for kind in ("[0-9a-f]" * _CONTENT_NAME_DIGITS, "new"):
            for part in glob.glob(f"{name}.{kind}.part"):
                with suppress(OSError):
                    os.unlink(part)


def _tell(result: Path, copied: Copied) -> None:
    """Leave word that the file is there, for a queue that does not see us end."""
    part = result.with_suffix(".part")
    with part.open("w") as file:
        json.dump({"bytes": copied.bytes, "sha256": copied.sha256}, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(result)


if __name__ == "__main__":
    main()
