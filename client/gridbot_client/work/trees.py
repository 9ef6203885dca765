"""Trees that tasks wrote, which may be hostile: measured up to a limit, and removed whatever is in.

A task may nest directories deeper than a path is long, or take away its own permissions.  So both
go by descriptors, never by long paths, follow no link, and open closed directories first.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_MOST_DEPTH = 100
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class Usage:
    """Disk space and number of files, directories included, still allowed to a tree."""

    bytes_left: int
    files_left: int

    @property
    def is_exceeded(self) -> bool:
        """True if the tree takes more than it may."""
        return self.bytes_left < 0 or self.files_left < 0

    def take(self, found: os.stat_result) -> None:
        """Count a file, by the space that it takes: holes of sparse files are free."""
        self.bytes_left -= found.st_blocks * 512
        self.files_left -= 1


def exceeds(path: Path, most_bytes: int, most_files: int) -> bool:
    """True if a tree takes more space or has more files; stops looking once it does."""
    usage = Usage(most_bytes, most_files)
    with suppress(OSError):
        _measure(os.open(path, _OPEN), usage, _MOST_DEPTH)
    return usage.is_exceeded


def is_pristine(path: Path, names: Sequence[str]) -> bool:
    """True for a directory that holds these names and is otherwise as if just made by us."""
    with suppress(OSError):
        found = os.lstat(path)
        return (
            stat.S_ISDIR(found.st_mode)
            and found.st_uid == os.geteuid()
            and found.st_mode & 0o7700 == 0o700
            and holds_only(path, names)
        )
    return False


def holds_only(path: Path, names: Sequence[str]) -> bool:
    """True for a directory that holds these names, and has no attributes beside the usual ones."""
    return sorted(os.listdir(path)) == sorted(names) and not os.listxattr(path)


def holds_only_folders(path: Path, names: Collection[str]) -> bool:
    """True for a directory that holds these paths and what leads to them, and nothing else."""
    below: dict[str, set[str]] = {"": set(), **{name: set() for name in names}}
    for name in names:
        parts = name.split("/")
        for depth, part in enumerate(parts):
            below.setdefault("/".join(parts[:depth]), set()).add(part)
    folders = {name: found for name, found in below.items() if (path / name).is_dir()}
    return all(holds_only(path / name, [*found]) for name, found in folders.items())


def _measure(directory: int, usage: Usage, depth: int) -> None:
    """Count what is in a directory, and close it.  Deeper nesting than `depth` counts as excess."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                with suppress(OSError):  # removed meanwhile
                    found = entry.stat(follow_symlinks=False)
                    usage.take(found)
                    if usage.is_exceeded:
                        return
                    if not stat.S_ISDIR(found.st_mode):
                        continue
                    if depth == 0:
                        usage.files_left = -1
                        return
                    _measure(_enter(directory, entry.name), usage, depth - 1)
    finally:
        os.close(directory)


def _enter(directory: int, name: str) -> int:
    """Open a directory in another one, also if its permissions were taken away."""
    try:
        return os.open(name, _OPEN, dir_fd=directory)
    except PermissionError:
        place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            if not stat.S_ISDIR(os.fstat(place).st_mode):
                raise
            os.chmod(f"/proc/self/fd/{place}", 0o700)
        finally:
            os.close(place)
        return os.open(name, _OPEN, dir_fd=directory)


def remove(path: Path) -> None:
    """Remove a tree, or as much of it as can be.

    Directories in directories are first moved up to the top, so that no path gets long.
    """
    try:
        os.unlink(path)
        return
    except FileNotFoundError:
        return
    except OSError:
        pass
    with suppress(OSError):
        os.chmod(path, 0o700, follow_symlinks=os.chmod not in os.supports_follow_symlinks)
    with suppress(OSError):
        top = os.open(path, _OPEN)
        try:
            _empty(top)
        finally:
            os.close(top)
        os.rmdir(path)


def clear(path: Path, kept: Collection[str] = ()) -> None:
    """Remove all that is in a directory but what leads to the paths `kept`, relative to it.

    Raises OSError if it is something else, such as a link, or one of those is.
    """
    top = os.open(path, _OPEN)
    try:
        firsts = {name.partition("/")[0] for name in kept}
        for name in os.listdir(top):
            place = Path(f"/proc/self/fd/{top}", name)
            below = [rest for first, _, rest in (p.partition("/") for p in kept) if first == name]
            if name not in firsts:
                remove(place)
            elif any(below) or not stat.S_ISREG(os.lstat(place).st_mode):
                clear(place, [rest for rest in below if rest])
    finally:
        os.close(top)


def _empty(top: int) -> None:
    left, count = _clear(top, top, 0), 0
    while left:
        name = left.pop()
        with suppress(OSError):
            directory = _enter(top, name)
            try:
                moved = _clear(directory, top, count)
            finally:
                os.close(directory)
            left += moved
            count += len(moved)
            os.rmdir(name, dir_fd=top)


def _clear(directory: int, top: int, count: int) -> list[str]:
    """Unlink the files of a directory; move its directories to `top`, and return their names."""
    moved = []
    with os.scandir(directory) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in names:
        with suppress(OSError):
            if not is_directory:
                os.unlink(name, dir_fd=directory)
            elif directory == top:
                moved.append(name)
            else:
                os.close(_enter(directory, name))  # to move it takes permission to write in it
                fresh = f".removed-{count + len(moved)}"
                os.rename(name, fresh, src_dir_fd=directory, dst_dir_fd=top)
                moved.append(fresh)
    return moved
