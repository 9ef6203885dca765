"""A folder that the pilots of one grid share: what one has fetched, the others copy from it.

Nothing in it is trusted.  What is copied from it is hashed, and what is not the right file is
removed, so that it is fetched anew.  A file is written under another name, which one pilot at a
time can have, and renamed when it is whole.  The folder keeps within a size: what was used longest
ago goes first, copies in progress stay.  No task sees it.

Files have the names that they have in a client's own cache (`cache.py`).  The folder is used only
if it is this user's and nobody else may change it.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from gridbot_client.filesystem import time_at
from gridbot_client.protocol.messages import FileRef
from gridbot_client.work import trees

log = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20
_NEW = ".new-"  # how a file's name begins while it is written
# Without a write, by the file system's clock, after which the writer is taken for gone.
_STALE_SECONDS = 600.0
# What open says of a link, of a file that was closed to its own user, and of a socket.
_NO_FILE = {errno.ELOOP, errno.EACCES, errno.ENXIO}


class _WrongFile(Exception):
    """What has the name of a file is not that file."""


class SharedCache:
    """The folder, on a file system that all machines of a site see."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path, self._most_bytes = path, most_bytes

    def take(self, name: str, ref: FileRef, part: Path) -> bool:
        """Make `part` a copy of a file; false if there is no right one, and `part` is as it was."""
        copy = part.with_suffix(".shared.part")
        try:
            self._check()
            with self._open(name) as source:
                _copy(source, ref, copy)
            copy.rename(part)
            return True
        except _WrongFile:
            log.warning("shared cache: %s is another file; it is removed", self._path / name)
            trees.remove(self._path / name)
        except OSError as error:
            _tell(error)
        finally:
            copy.unlink(missing_ok=True)
        return False

    def give(self, name: str, ref: FileRef, source: Path) -> None:
        """Put a copy of a file there, if it fits and is not there; what fails costs only that.

        While one pilot does so, the others that have fetched the same file put nothing there.
        """
        try:
            self._check()
            if ref.size <= self._most_bytes:
                self._remove_stale()
                self._add(name, ref, source)
        except OSError as error:
            _tell(error)

    def _add(self, name: str, ref: FileRef, source: Path) -> None:
        """Add a file.  Raises FileExistsError while another pilot does."""
        new = self._path / f"{_NEW}{name}"
        new.touch(0o600, exist_ok=False)
        try:
            with new.open("r+b") as file, source.open("rb") as given:
                file.truncate(ref.size)  # others see from the start what room it takes
                if self._holds(name) or not self._make_room():
                    return
                shutil.copyfileobj(given, file, _CHUNK_BYTES)
                file.flush()
                os.fsync(file.fileno())
            new.rename(self._path / name)
        finally:
            new.unlink(missing_ok=True)

    def _open(self, name: str) -> BinaryIO:
        """Open a plain file, and note that it is used.  Raises _WrongFile if it is none."""
        try:
            number = os.open(self._path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in _NO_FILE:
                raise _WrongFile from error
            raise
        try:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise _WrongFile
            os.utime(number)
            return os.fdopen(number, "rb")
        except BaseException:
            os.close(number)
            raise

    def _holds(self, name: str) -> bool:
        with suppress(FileNotFoundError):
            return stat.S_ISREG((self._path / name).lstat().st_mode)
        return False

    def _check(self) -> None:
        """Raise OSError if the folder is not this user's alone."""
        found = self._path.stat()
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{self._path} belongs to others, or others may change it")

    def _remove_stale(self) -> None:
        """Remove what pilots that are gone have left half written."""
        now = time_at(self._path)
        for used, _, name in self._found():
            # A time to come is none of a writer's either, and would keep the name for ever.
            if name.startswith(_NEW) and abs(now - used) > _STALE_SECONDS:
                trees.remove(self._path / name)

    def _make_room(self) -> bool:
        """Remove what was used longest ago until all fits; false if copies in progress do not."""
        found = self._found()
        finished = [item for item in found if not item[2].startswith(_NEW)]
        excess = sum(size for _, size, _ in found) - self._most_bytes
        if excess > sum(size for _, size, _ in finished):
            return False
        for _, size, name in sorted(finished):
            if excess <= 0:
                break
            trees.remove(self._path / name)
            excess -= size
        return True

    def _found(self) -> list[tuple[float, int, str]]:
        """When each entry was last written or used, its size and its name."""
        found = list[tuple[float, int, str]]()
        with os.scandir(self._path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another pilot has removed it
                    seen = entry.stat(follow_symlinks=False)
                    found.append((seen.st_mtime, seen.st_size, entry.name))
        return found


def _copy(source: BinaryIO, ref: FileRef, target: Path) -> None:
    """Copy a file, no more than its size.  Raises _WrongFile if it is not the right one."""
    if os.fstat(source.fileno()).st_size != ref.size:
        raise _WrongFile
    digest, left = hashlib.sha256(), ref.size
    with target.open("wb") as file:
        while left and (data := source.read(min(_CHUNK_BYTES, left))):
            digest.update(data)
            file.write(data)
            left -= len(data)
        file.flush()
        os.fsync(file.fileno())
    if left or digest.hexdigest() != ref.sha256:
        raise _WrongFile


def _tell(error: OSError) -> None:
    """Say what keeps the folder from being used; no file, or one being written, is no fault."""
    if not isinstance(error, (FileNotFoundError, FileExistsError)):
        log.warning("shared cache: %s", error)
