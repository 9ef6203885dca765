"""Log files: of bounded size, a bounded number of older ones beside each."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

FILE_BYTES = 8 << 20
OLDER_FILES = 3  # of each log: NAME.log.1 is the latest of them
_OWN = (1, 2)  # descriptors of what a process itself says


def open_log(path: Path) -> BinaryIO:
    """Open a log to append to, for its owner's eyes only."""
    return open(path, "ab", buffering=0, opener=lambda name, flags: os.open(name, flags, 0o600))


def rotate(path: Path) -> None:
    """Set a log aside as the latest of its older files; the oldest of these is gone."""
    if not path.exists():
        return
    older = [path.with_name(f"{path.name}.{number}") for number in range(1, OLDER_FILES + 1)]
    for name, newer in reversed(list(zip(older, [path, *older], strict=False))):
        with suppress(FileNotFoundError):
            newer.replace(name)


def rotate_long(path: Path, most: int = FILE_BYTES) -> bool:
    """Set a log aside if it has grown long, before somebody opens it; whether it had."""
    is_long = path.exists() and path.stat().st_size > most
    if is_long:
        rotate(path)
    return is_long


def rotate_own(path: Path, most: int = FILE_BYTES) -> None:
    """Set the log aside that this process writes by its standard error, and begin another."""
    if _is_own(path) and rotate_long(path, most):
        with open_log(path) as fresh:
            for descriptor in _OWN:  # at once, for all threads: no line is lost
                os.dup2(fresh.fileno(), descriptor)


def _is_own(path: Path) -> bool:
    """Whether the standard error of this process is that file, and not a terminal, say."""
    try:
        return os.path.samestat(path.stat(), os.fstat(_OWN[-1]))
    except OSError:
        return False


class RotatedLog:
    """One log, which nobody else writes."""

    def __init__(self, path: Path, most: int = FILE_BYTES) -> None:
        self.path, self._most = path, most
        self._file = open_log(path)
        self._size = self._file.tell()

    def write(self, data: bytes) -> None:
        """Append, in as many files as it takes; a line longer than a file is split."""
        while len(data) > (room := self._most - self._size):
            end = data.rfind(b"\n", 0, max(0, room)) + 1
            if not end and not self._size:
                end = room
            self._append(data[:end])
            self._rotate()
            data = data[end:]
        self._append(data)

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = self._file.write(view)
            self._size += written
            view = view[written:]

    def _rotate(self) -> None:
        rotate(self.path)
        before, self._file, self._size = self._file, open_log(self.path), 0
        before.close()
