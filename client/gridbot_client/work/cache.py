"""Input files by content: fetched once, checked, bounded in size, never handed out themselves."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from gridbot_client.net.transport import hash_of
from gridbot_client.protocol.messages import FileRef
from gridbot_client.storage import sync_directory

Fetch = Callable[[str, int, Path], None]  # completes a partial file, as Transport.download


class Cache:
    """The cache folder.  Programs get copies, so that none can spoil another's inputs."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._used_bytes = sum(entry.stat().st_size for entry in os.scandir(path))
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._checked: dict[str, tuple[int, int, int]] = {}

    def put(self, ref: FileRef, target: Path, fetch: Fetch) -> None:
        """Place a copy of the file at `target`, fetching it first if needed; raises as `fetch`."""
        with self._locks[ref.sha256]:
            source = self._path / ref.sha256
            if not self._is_good(ref.sha256, source):
                self._fetch(ref, source, fetch)
            os.utime(source, ns=(time.time_ns(), source.stat().st_mtime_ns))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        target.chmod(0o755 if ref.executable else 0o644)
        if self._used_bytes > self._most_bytes:
            self._shrink()

    def _fetch(self, ref: FileRef, source: Path, fetch: Fetch) -> None:
        part = self._path / f"{ref.sha256}.part"
        fetch(ref.sha256, ref.size, part)
        part.chmod(0o400)
        part.rename(source)
        sync_directory(self._path)
        self._checked[ref.sha256] = _mark(source)
        self._used_bytes += ref.size

    def _is_good(self, sha256: str, path: Path) -> bool:
        """Whether the file is there and right; hashed once, then known by its stat."""
        if not path.exists():
            return False
        if self._checked.get(sha256) == _mark(path):
            return True
        if hash_of(path) != sha256:
            path.unlink()
            return False
        self._checked[sha256] = _mark(path)
        return True

    def _shrink(self) -> None:
        """Remove what was not used for longest, down to nine tenths, sparing what is in use."""
        files = sorted(
            ((entry.stat(), entry) for entry in os.scandir(self._path)),
            key=lambda found: found[0].st_atime_ns,
        )
        self._used_bytes = sum(stat.st_size for stat, _ in files)
        for stat, entry in files:
            if self._used_bytes <= self._most_bytes * 0.9:
                return
            lock = self._locks[entry.name.removesuffix(".part")]
            if lock.acquire(blocking=False):
                Path(entry.path).unlink(missing_ok=True)
                self._used_bytes -= stat.st_size
                lock.release()


def _mark(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
