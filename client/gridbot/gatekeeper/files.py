"""The files of jobs: what clients sent until a job ends, what it left from then on.

ID/inputs/NAME    whole files: each is written beside, synced, and renamed
ID/outputs/NAME   all of them at once: the directory is renamed when it is complete
parts/            what is being written; emptied at the start
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gridbot.gatekeeper.descriptions import SentFile
from gridbot_client.filesystem import sync_directory
from gridbot_client.protocol.fields import ProtocolError, file_name

BLOCK_BYTES = 1 << 20
_PARTS = "parts"
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))


class CutShort(Exception):
    """A file did not arrive whole."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A file or a directory below a job's; its name is the last part of its path."""

    path: Path
    name: str
    is_directory: bool
    size: int
    changed: float  # seconds since 1970


@dataclass(frozen=True, slots=True)
class ArcOutput:
    """An output that a job has left: its bytes, and a call that writes it."""

    size: int
    save: Callable[[Path], object]


class JobFiles:
    """A folder with the files of all jobs; `free_bytes` stay free on its disk.

    Threads may share it.
    """

    def __init__(self, folder: Path, free_bytes: int = 256 << 20) -> None:
        self._folder, self._parts = folder, folder / _PARTS
        self._free_bytes, self._reserved, self._lock = free_bytes, 0, threading.Lock()
        shutil.rmtree(self._parts, ignore_errors=True)
        self._parts.mkdir(mode=0o700, parents=True)

    def inputs(self, id: str) -> Path:
        """Where a job's inputs are, or will be."""
        return self._folder / id / "inputs"

    def outputs(self, id: str) -> Path:
        """Where a job's outputs are, or will be."""
        return self._folder / id / "outputs"

    @contextmanager
    def room(self, size: int) -> Iterator[Callable[[int], None]]:
        """Hold room for so many bytes on the disk; the call that it gives is told of those written.

        Raises OSError (see `is_full`) if there is less, beside what is held already.
        """
        with self._lock:
            free = shutil.disk_usage(self._folder).free - self._free_bytes - self._reserved
            if size > max(free, 0):
                raise OSError(errno.ENOSPC, f"room for {size} bytes is asked for, {free} are there")
            self._reserved += size
        left = size

        def wrote(count: int) -> None:
            nonlocal left
            with self._lock:
                done = min(count, left)
                left -= done
                self._reserved -= done

        try:
            yield wrote
        finally:
            wrote(left)

    def receive(
        self,
        id: str,
        file: SentFile,
        size: int,
        read: Callable[[int], bytes],
        awaiting: AbstractContextManager[object],
    ) -> None:
        """Take an input of a job.  Raises CutShort if it ends before its size, and OSError.

        It is put into its place within `awaiting`, which holds the job as it is, or raises.
        """
        with self.room(size) as wrote, self._part() as part:
            with part.open("wb") as content:
                for block in _blocks(file.name, size, read):
                    content.write(block)
                    wrote(len(block))
                content.flush()
                os.fsync(content.fileno())
            part.chmod(0o700 if file.is_executable else 0o600)
            place = self.inputs(id) / file.name
            with awaiting:
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                part.replace(place)
                for folder in _up_to(place.parent, self._folder):
                    sync_directory(folder)

    def missing(self, id: str, files: Iterable[SentFile]) -> list[str]:
        """Names of inputs that have not arrived."""
        return [file.name for file in files if not (self.inputs(id) / file.name).is_file()]

    def keep(self, id: str, outputs: Mapping[str, ArcOutput]) -> None:
        """Fetch outputs of a job, by their names.  Raises OSError."""
        target = self.outputs(id)
        if not target.is_dir():
            with self.room(sum(output.size for output in outputs.values())) as wrote:
                made = Path(tempfile.mkdtemp(dir=self._parts))
                try:
                    _fetch(made, outputs, wrote)
                    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    made.rename(target)
                finally:
                    shutil.rmtree(made, ignore_errors=True)  # what was not renamed
        for folder in _up_to(target.parent, self._folder):
            sync_directory(folder)

    def drop_inputs(self, id: str) -> None:
        """Delete what clients sent for a job."""
        shutil.rmtree(self.inputs(id), ignore_errors=True)

    def find(self, folder: Path, name: str) -> Path | None:
        """A file or directory in a job's directory, by its path there; the root without any."""
        try:
            found = folder / file_name(name, "file") if name else folder
        except ProtocolError:
            return None
        return found if found.exists() or not name else None

    def listed(self, place: Path) -> list[Listed]:
        """What a directory holds, by name; of a file, or nothing, none."""
        if not place.is_dir():
            return []
        return [one(entry) for entry in sorted(place.iterdir())]

    def remove(self, id: str) -> None:
        """Delete the files of a job."""
        shutil.rmtree(self._folder / id, ignore_errors=True)

    def sweep(self, ids: set[str], unended: set[str]) -> None:
        """Delete what jobs left that are not among these, and inputs of those that have ended."""
        for entry in self._folder.iterdir():
            if entry == self._parts or entry.name in unended:
                continue
            if entry.name in ids:
                self.drop_inputs(entry.name)
            else:
                self.remove(entry.name)

    @contextmanager
    def _part(self) -> Iterator[Path]:
        descriptor, path = tempfile.mkstemp(dir=self._parts)
        os.close(descriptor)
        try:
            yield Path(path)
        finally:
            Path(path).unlink(missing_ok=True)


def one(path: Path) -> Listed:
    """What is known of a file or a directory."""
    found = path.stat()
    return Listed(path, path.name, path.is_dir(), found.st_size, found.st_mtime)


def is_full(error: Exception) -> bool:
    """Whether an error says that a disk, or a quota on it, has no room."""
    return isinstance(error, OSError) and error.errno in _FULL


def _blocks(name: str, size: int, read: Callable[[int], bytes]) -> Iterator[bytes]:
    """The whole content of a file.  Raises CutShort."""
    left = size
    while left:
        block = read(min(left, BLOCK_BYTES))
        if not block:
            raise CutShort(f"{name}: {left} of {size} bytes are missing")
        left -= len(block)
        yield block


def _fetch(folder: Path, outputs: Mapping[str, ArcOutput], wrote: Callable[[int], None]) -> None:
    """Let each output be written below a folder, and sync it all.

    In order of their names: what is written as x.part first cannot take the place of an x.part.
    """
    for name, output in sorted(outputs.items()):
        place = folder / file_name(name, "output")
        place.parent.mkdir(parents=True, exist_ok=True)
        output.save(place)
        with place.open("rb") as content:
            os.fsync(content.fileno())
        wrote(output.size)
    for below in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        sync_directory(below)


def _up_to(folder: Path, last: Path) -> Iterator[Path]:
    while folder != last:
        yield folder
        folder = folder.parent
    yield last
