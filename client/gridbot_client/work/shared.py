"""Shared folders: directories that many replicas and BOTs see read-only, made once per host.

Each is made by whoever needs it first, in a directory of its own, and counts once its mark is
written: after a crash, what has no mark is removed.  The mark tells size and fingerprint.  Behind
walls of level 2 no job can change a folder.  Below, it is compared with its fingerprint before each
use; one that was changed is made anew, beside those that still use the old one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gridbot_client.protocol.messages import FileRef
from gridbot_client.storage import read_json, write_atomically
from gridbot_client.work import trees, unpacking

log = logging.getLogger(__name__)

_TRY_SECONDS = 0.2  # between two looks whether a wait is to end
SPARE_BYTES = 64 << 20  # of the disk, that are left free

ENVIRONMENT_FAILED = "environment_failed"  # reason code

Fetch = Callable[[FileRef, Path], None]  # an input to a path
# Makes a directory of this name, with what is to be in it; says how much it has put elsewhere.
Make = Callable[[Path], int | None]


class CannotProvide(Exception):
    """What the BOT needs cannot be had here; `reason` is the replica's reason code."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class NoRoomForFolder(Exception):
    """A folder needs more than the machine's owner allows, or than there is; says how much."""


class Interrupted(Exception):
    """The wait for another thread's folder was ended."""


@dataclass(slots=True)
class _Whole:
    """A folder that was finished."""

    path: Path
    key: str
    bytes: int
    fingerprint: str

    @property
    def tree(self) -> Path:
        return self.path / "tree"

    @property
    def mark(self) -> Path:
        return self.path / "mark.json"


class SharedFolders:
    """The shared folders of a client, least recently used first out; safe for many threads."""

    def __init__(
        self, path: Path, most_bytes: int, forget: Callable[[Path], None] = lambda _: None
    ) -> None:
        """Find what earlier clients made; `forget` is called with each folder before it goes."""
        self._path = path
        self._forget = forget
        self.most_bytes = most_bytes
        self._lock = threading.Lock()  # of the fields below
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)  # by key
        self._whole: dict[str, _Whole] = {}  # by key, the least recently used first
        self._lent: Counter[Path] = Counter()
        self._stale: set[Path] = set()  # changed or replaced, and perhaps still lent
        self._seen: set[Path] = set()  # compared with their fingerprint in this client's life
        self._made = 0
        self._recover()

    @contextmanager
    def lent(
        self, key: str, make: Make, needs_bytes: int, *, is_guarded: bool,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[Path]:  # fmt: skip
        """The folder of a key, made first if need be; it stays as long as the context.

        `is_guarded` says that walls keep jobs from changing it.  Raises NoRoomForFolder,
        Interrupted, and what `make` raises.
        """
        lock = self._locks[key]
        while not lock.acquire(timeout=_TRY_SECONDS):
            if is_stopped():
                raise Interrupted
        try:
            whole = self._found(key, is_guarded) or self._make(key, make, needs_bytes)
        finally:
            lock.release()
        try:
            yield whole.tree
        finally:
            self._give_back(whole.path)

    def _found(self, key: str, is_guarded: bool) -> _Whole | None:
        """The folder of a key, lent; None if there is none, or it is not as it was made."""
        with self._lock:
            whole = self._whole.pop(key, None)
            if whole is None:
                return None
            self._whole[key] = whole
            self._lent[whole.path] += 1
            is_sure = is_guarded and whole.path in self._seen
        if is_sure or _is_as_made(whole):
            with self._lock:
                self._seen.add(whole.path)
            with suppress(OSError):
                os.utime(whole.mark)
            return whole
        log.warning("%s was changed, and is made anew", whole.tree)
        with self._lock:
            del self._whole[key]
            self._stale.add(whole.path)
        self._give_back(whole.path)
        return None

    def _make(self, key: str, make: Make, needs_bytes: int) -> _Whole:
        self._make_room(needs_bytes)
        with self._lock:
            self._made += 1
            path = self._path / f"{self._made}"
            self._lent[path] += 1
        try:
            path.mkdir(mode=0o755)
            elsewhere = make(path / "tree") or 0
            taken = unpacking.freeze(path / "tree") + elsewhere
            os.sync()  # before its mark says that it is whole
            whole = _Whole(path, key, taken, fingerprint(path / "tree"))
            mark = {"key": key, "bytes": taken, "fingerprint": whole.fingerprint}
            write_atomically(whole.mark, json.dumps(mark).encode())
        except BaseException:
            with self._lock:
                self._stale.add(path)
            self._give_back(path)
            raise
        with self._lock:
            self._whole[key] = whole
            self._seen.add(path)
        self._make_room(0)
        return whole

    def _give_back(self, path: Path) -> None:
        with self._lock:
            self._lent[path] -= 1
            if self._lent[path] > 0:
                return
            del self._lent[path]
            is_over = path in self._stale
            self._stale.discard(path)
        if is_over:
            self._remove(path)

    def _make_room(self, needs_bytes: int) -> None:
        """Remove what was not used for longest, and is not in use.  Raises NoRoomForFolder."""
        if needs_bytes > self.most_bytes:
            raise NoRoomForFolder(
                f"it needs {needs_bytes >> 20} MB, and this machine keeps at most"
                f" {self.most_bytes >> 20} MB of such folders"
            )
        while True:
            with self._lock:
                used = sum(whole.bytes for whole in self._whole.values())
                free = shutil.disk_usage(self._path).free - SPARE_BYTES
                if used + needs_bytes <= self.most_bytes and needs_bytes <= free:
                    return
                idle = [whole for whole in self._whole.values() if not self._lent[whole.path]]
                if not idle:
                    break
                del self._whole[idle[0].key]
            self._remove(idle[0].path)
        if needs_bytes > max(0, free):
            raise NoRoomForFolder(
                f"it needs {needs_bytes >> 20} MB, and {max(0, free) >> 20} MB are free"
            )

    def _recover(self) -> None:
        """Find what earlier clients have made; remove what they did not finish."""
        found = []
        for path in self._path.iterdir():
            self._made = max(self._made, int(path.name) if path.name.isdecimal() else 0)
            mark = read_json(path / "mark.json") or {}
            try:
                whole = _Whole(path, str(mark["key"]), int(mark["bytes"]), mark["fingerprint"])
                found.append((whole.mark.stat().st_mtime, whole))
            except (KeyError, TypeError, ValueError, OSError):
                self._remove(path)
        for _, whole in sorted(found, key=lambda item: item[0]):
            if other := self._whole.pop(whole.key, None):
                self._remove(other.path)
            self._whole[whole.key] = whole

    def _remove(self, path: Path) -> None:
        (path / "mark.json").unlink(missing_ok=True)
        self._forget(path / "tree")
        unpacking.thaw(path)
        trees.remove(path)


def _is_as_made(whole: _Whole) -> bool:
    try:
        return fingerprint(whole.tree) == whole.fingerprint
    except OSError:  # somebody removes it, or has done so
        return False


def fingerprint(top: Path) -> str:
    """Hash over names, modes, inodes, sizes and times of all in a tree, and its top's mode.

    Any change of a file changes its change time, which no program can set (inode(7)).
    """
    found = hashlib.sha256(b"%d\n" % os.lstat(top).st_mode)
    left = [str(top)]
    while left:
        directory = left.pop()
        for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
            status = entry.stat(follow_symlinks=False)
            found.update(os.fsencode(entry.path[len(str(top)) :]))
            found.update(
                b"\0%d %d %d %d %d\n"
                % (status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns,
                   status.st_ctime_ns)
            )  # fmt: skip
            if entry.is_dir(follow_symlinks=False):
                left.append(entry.path)
    return found.hexdigest()
