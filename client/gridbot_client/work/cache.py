"""Content-addressed cache of input files: verified, bounded in size; replicas get copies.

A job that runs under the client's own account can write into the cache and set a file's size and
modification time back.  It cannot set the change time back.  So a file counts as unchanged only
while inode, size, modification and change time are those of the moment after it was hashed.  A
change within the clock's resolution of that moment would go unseen, so a file that was changed
just before it was hashed is hashed again at its next use.

A hash alone gives nobody a file.  The server names one only to those who have sent it, but of an
input with sources anybody names the hash: such files are kept apart for each owner.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from heapq import nlargest
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from gridbot_client.filesystem import sync_directory
from gridbot_client.net.transport import hash_of
from gridbot_client.protocol.cached import LEAST_BYTES, MAX_TOLD, cache_name, mark_of
from gridbot_client.protocol.messages import FileRef
from gridbot_client.work.shared_cache import SharedCache

_RACY_NS = 2_000_000_000  # coarser than any clock of a file system

Fetch = Callable[[str, int, Path], None]  # completes a partial file, as Transport.download


class _Mark(NamedTuple):
    """Metadata of a file, some of which differs after any change of its content."""

    inode: int
    size: int
    modified_ns: int
    changed_ns: int


class Cache:
    """The cache folder.  Replicas get copies, so that none can change another's inputs."""

    def __init__(
        self, path: Path, most_bytes: int, clock_ns: Callable[[], int] = time.time_ns,
        shared: SharedCache | None = None,
    ) -> None:  # fmt: skip
        self._path = path
        self._shared = shared  # with other clients
        self._clock_ns = clock_ns  # the file system's
        self.most_bytes = most_bytes
        sizes = {entry.name: entry.stat().st_size for entry in os.scandir(path)}
        self._used_bytes = sum(sizes.values())
        self._marks = {mark_of(name): size for name, size in sizes.items() if _is_told(name, size)}
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._checked: dict[str, _Mark] = {}
        self._used_ns: dict[str, int] = {}

    def marks(self) -> tuple[str, ...]:
        """Marks of the largest files, as the server is told."""
        held = list(self._marks.items())  # threads add to them and take from them
        return tuple(sorted(mark for mark, _ in nlargest(MAX_TOLD, held, key=itemgetter(1, 0))))

    def put(self, ref: FileRef, target: Path, fetch: Fetch, whose: str = "") -> None:
        """Copy a file to `target`; download it first if needed.  Raises the errors of `fetch`.

        `whose` is the owner of a BOT whose sources give the file; others' are not looked at.
        """
        name = cache_name(ref.sha256, whose)
        with self._locks[name]:
            source = self._path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            while not self._copied(ref, source, target):
                self._fetch(ref, source, fetch)
            self._used_ns[name] = self._clock_ns()
        target.chmod(0o755 if ref.executable else 0o644)
        if self._used_bytes > self.most_bytes:
            self._shrink()

    def _fetch(self, ref: FileRef, source: Path, fetch: Fetch) -> None:
        part = source.with_name(f"{source.name}.part")
        if self._shared is None:
            fetch(ref.sha256, ref.size, part)
        elif not self._shared.take(source.name, ref, part):
            fetch(ref.sha256, ref.size, part)
            self._shared.give(source.name, ref, part)
        part.chmod(0o400)
        part.rename(source)
        sync_directory(self._path)
        self._used_bytes += ref.size
        if _is_told(source.name, ref.size):
            self._marks[mark_of(source.name)] = ref.size

    def _copied(self, ref: FileRef, source: Path, target: Path) -> bool:
        """Copy the file; False if it is missing, does not match its hash, or changed meanwhile."""
        if not source.exists():
            return False
        before = _mark(source)
        if self._checked.get(source.name) != before:
            if hash_of(source) != ref.sha256:
                self._drop(source, before.size)
                return False
            if self._clock_ns() - before.changed_ns > _RACY_NS:
                self._checked[source.name] = before
        shutil.copyfile(source, target)
        if _mark(source) != before:  # the copy may hold some of either content
            self._drop(source, before.size)
            return False
        return True

    def _drop(self, source: Path, size: int) -> None:
        source.unlink()
        self._used_bytes -= size
        self._marks.pop(mark_of(source.name), None)

    def _shrink(self) -> None:
        """Evict least recently used files, not those in use, down to nine tenths of the limit."""
        files = sorted(
            ((entry.stat(), entry) for entry in os.scandir(self._path)),
            # What was used before this client started is known by its access time, if at all.
            key=lambda found: self._used_ns.get(found[1].name, found[0].st_atime_ns),
        )
        self._used_bytes = sum(stat.st_size for stat, _ in files)
        for stat, entry in files:
            if self._used_bytes <= self.most_bytes * 0.9:
                return
            lock = self._locks[entry.name.partition(".")[0]]  # a part is named after its file
            if lock.acquire(blocking=False):
                Path(entry.path).unlink(missing_ok=True)
                self._used_bytes -= stat.st_size
                self._marks.pop(mark_of(entry.name), None)
                lock.release()


def _is_told(name: str, size: int) -> bool:
    return size >= LEAST_BYTES and not name.endswith(".part")


def _mark(path: Path) -> _Mark:
    stat = path.stat()
    return _Mark(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
