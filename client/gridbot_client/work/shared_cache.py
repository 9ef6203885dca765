"""A folder that the pilots of one grid share: what one has fetched, the others copy from it.

Nothing in it is trusted.  What is copied from it is hashed, and a file that is another one is
removed, so that it is fetched anew.  Files appear there whole, by a new name and a rename.  It
keeps within a size: what was used longest ago goes first.  No task sees it.

Files have the names that they have in a client's own cache (`cache.py`).  The folder is used only
if it is this user's and nobody else may change it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from gridbot_client.protocol.messages import FileRef

log = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20
_NEW = ".new-"  # how a file's name begins while it is written
_STALE_SECONDS = 86400.0  # after which who wrote it is gone


class SharedCache:
    """The folder, on a file system that all machines of a site see."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path, self._most_bytes = path, most_bytes

    def take(self, name: str, ref: FileRef, part: Path) -> bool:
        """Make `part` a copy of a file; false if there is no right one."""
        try:
            with self._open(name) as source:
                is_right = _copied(source, ref, part)
        except OSError as error:
            _tell(error)
            return False
        if not is_right:
            log.warning("shared cache: %s is another file; it is removed", self._path / name)
            self._remove(name)
        return is_right

    def give(self, name: str, ref: FileRef, source: Path) -> None:
        """Put a copy of a file there, if it fits and is not there; what fails costs only that."""
        try:
            self._check()
            if ref.size > self._most_bytes or (self._path / name).exists():
                return
            self._make_room(ref.size)
            self._add(name, source)
        except OSError as error:
            _tell(error)

    def _add(self, name: str, source: Path) -> None:
        with tempfile.NamedTemporaryFile(dir=self._path, prefix=_NEW, delete=False) as file:
            try:
                with source.open("rb") as given:
                    shutil.copyfileobj(given, file, _CHUNK_BYTES)
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).rename(self._path / name)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise

    def _open(self, name: str) -> BinaryIO:
        """Open a plain file, and note that it is used."""
        self._check()
        number = os.open(self._path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        file = os.fdopen(number, "rb")
        if not stat.S_ISREG(os.fstat(number).st_mode):
            file.close()
            raise OSError(f"{self._path / name} is no plain file")
        os.utime(number)
        return file

    def _check(self) -> None:
        """Raise OSError if the folder is not this user's alone."""
        found = self._path.stat()
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{self._path} belongs to others, or others may change it")

    def _make_room(self, size: int) -> None:
        """Remove what was used longest ago until a file of this size fits."""
        now, found = time.time(), list[tuple[float, int, str]]()
        for entry in os.scandir(self._path):
            with suppress(FileNotFoundError):  # another pilot has removed it
                seen = entry.stat(follow_symlinks=False)
                if entry.name.startswith(_NEW) and now - seen.st_mtime > _STALE_SECONDS:
                    self._remove(entry.name)
                else:
                    found.append((seen.st_mtime, seen.st_size, entry.name))
        used = sum(item[1] for item in found)
        for _, freed, name in sorted(found):
            if used + size <= self._most_bytes:
                return
            self._remove(name)
            used -= freed

    def _remove(self, name: str) -> None:
        with suppress(OSError):  # gone already, or no file
            (self._path / name).unlink()


def _copied(source: BinaryIO, ref: FileRef, part: Path) -> bool:
    """Copy a file, no more than its size; whether it is the right one."""
    if os.fstat(source.fileno()).st_size != ref.size:
        return False
    digest, left = hashlib.sha256(), ref.size
    with part.open("wb") as target:
        while left and (data := source.read(min(_CHUNK_BYTES, left))):
            digest.update(data)
            target.write(data)
            left -= len(data)
        target.flush()
        os.fsync(target.fileno())
    if left or digest.hexdigest() != ref.sha256:
        part.unlink()
        return False
    return True


def _tell(error: OSError) -> None:
    """Say what keeps the folder from being used; a file that is not there is no fault."""
    if not isinstance(error, FileNotFoundError):
        log.warning("shared cache: %s", error)
