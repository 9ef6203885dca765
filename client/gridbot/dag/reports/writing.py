"""How reports reach the disk."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Write a file that is whole at every moment.  Its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.tmp")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


class Log:
    """A file that only grows, from `base` bytes on by what the journal says.

    After a crash all of it is said again; what is there already is not written twice.
    """

    def __init__(self, path: Path, base: int) -> None:
        self.path, self._base = path, base
        self._pieces: list[str] = []

    def add(self, text: str) -> None:
        """Keep text for the next `flush`."""
        if text:
            self._pieces.append(text)

    def restore(self) -> None:
        """Make the file hold what has been said so far, after a crash."""
        text = "".join(self._pieces).encode()
        self._pieces.clear()
        if not text and not self.path.exists():
            return
        with self.path.open("ab") as file:
            file.truncate(self._base)
        with self.path.open("ab") as file:
            file.write(text)

    def flush(self) -> None:
        """Write what was added."""
        if self._pieces:
            with self.path.open("a", encoding="utf-8") as file:
                file.write("".join(self._pieces))
            self._pieces.clear()


def size_of(path: Path) -> int:
    """Bytes of a file; 0 if there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
