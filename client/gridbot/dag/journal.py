"""The journal of a run: what happened, a line each, on the disk before it counts.

The first line says which run it is.  A torn last line, of a machine that lost its power, is cut
off.  Whoever holds the journal holds a lock on its file, which ends with the process.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gridbot.api.errors import BadInput, GridbotError
from gridbot.dag.engine.events import RunEvent

VERSION = 2
Document = Mapping[str, Any]


@dataclass(frozen=True)
class Happened:
    """An event, and what the journal keeps with it."""

    event: RunEvent
    more: Mapping[str, Any] = field(default_factory=dict)


def path_of(dag: str | Path) -> Path:
    """Where the journal of a DAG's run is while the run is not over."""
    return Path(f"{dag}.journal")


def kept_path_of(dag: str | Path) -> Path:
    """Where the journal of the last run is that is over."""
    return Path(f"{dag}.dagman.log")


class RunJournal:
    """An open journal.  `documents` are those that were there when it was opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise GridbotError(
                f"{path}: another process is at work on this run; let it end, or stop it"
            ) from None
        self.documents = self._read()

    def _read(self) -> list[Document]:
        text = self.path.read_bytes()
        whole = text.rfind(b"\n") + 1
        if whole != len(text):
            os.ftruncate(self._file, whole)
        return documents_in(self.path, text[:whole])

    def append(self, documents: Iterable[Document]) -> None:
        """Write documents, and return when they are on the disk."""
        text = b"".join(
            json.dumps(item, separators=(",", ":")).encode() + b"\n" for item in documents
        )
        while text:
            text = text[os.write(self._file, text) :]
        os.fsync(self._file)

    def keep(self, path: Path) -> None:
        """Give it another name: the run is over."""
        self.path.rename(path)
        self.close()

    def discard(self) -> None:
        """Remove it."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let others have it."""
        os.close(self._file)


def has_begun(path: Path) -> bool:
    """Whether a run began that this journal holds; one that is empty, or torn at once, is none."""
    try:
        with path.open("rb") as file:
            return file.readline().endswith(b"\n")
    except FileNotFoundError:
        return False


def is_held(path: Path) -> bool:
    """Whether a process works on this journal."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def documents_in(path: Path, text: bytes) -> list[Document]:
    """Documents of a journal's whole lines.  Raises BadInput."""
    found = []
    for number, line in enumerate(text.split(b"\n")[:-1], 1):
        try:
            found.append(json.loads(line))
        except ValueError:
            raise BadInput(f"{path}:{number}: is no line of a journal") from None
    if found and found[0].get("journal") != VERSION:
        raise BadInput(f"{path}: is a journal of another version of GridBot")
    return found
