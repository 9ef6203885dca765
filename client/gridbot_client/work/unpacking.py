"""Unpacks an archive into an empty directory, and lets nobody write there afterwards."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from pathlib import Path

from gridbot_client.protocol import archive
from gridbot_client.protocol.archive import BadArchive, Members
from gridbot_client.protocol.software import Unpacked

_LATEST_SECONDS = 1 << 32
_MODES = (0o444, 0o555)  # of data; of programs and directories


def unpack(source: Path, top: Path, said: Unpacked) -> None:
    """Unpack an archive, of which the manifest says how much it holds.  Raises BadArchive, OSError.

    Owners and most of the modes are not kept: a file is for all to read, and to execute if it was.
    """
    top.mkdir()
    links: list[Path] = []
    size = 0
    with source.open("rb") as file, archive.opened(file, said) as members:
        for name, found in members:
            size += found.size if found.isreg() else 0
            archive.check(size, members, said)
            path = top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                _make(path, found, members, top)
            except FileExistsError:
                raise BadArchive(f"it has two entries {name!r}") from None
            if found.issym():
                links.append(path)
        _check_links(top, links)
        if (size, members.count) != (said.bytes, said.entries):
            raise BadArchive(
                f"it holds {members.count} entries of {size} bytes, and its manifest says"
                f" {said.entries} of {said.bytes}"
            )


def _make(path: Path, found: tarfile.TarInfo, members: Members, top: Path) -> None:
    if found.isdir():
        path.mkdir(exist_ok=True)
    elif found.issym():
        path.symlink_to(found.linkname)
    elif found.islnk():
        os.link(top / found.linkname, path)
    else:
        with path.open("xb") as target, members.content(found) as content:
            shutil.copyfileobj(content, target, archive.MOST_READ_BYTES)
            if target.tell() != found.size:
                raise BadArchive(f"its entry {found.name!r} is not whole")
            os.fchmod(target.fileno(), 0o755 if found.mode & stat.S_IXUSR else 0o644)
        # Compiled Python files name the time of their source.
        seconds = int(min(max(found.mtime, 0), _LATEST_SECONDS))
        os.utime(path, (seconds, seconds))


def _check_links(top: Path, links: list[Path]) -> None:
    """Refuse links that lead out by way of other links."""
    inside = os.path.realpath(top)
    for path in links:
        real = os.path.realpath(path)
        if real != inside and not real.startswith(f"{inside}/"):
            name = path.relative_to(top)
            raise BadArchive(f"its entry {str(name)!r} is a link out of the directory")


def freeze(top: Path) -> int:
    """Let nobody write into a tree, and make it ours; return the bytes that it takes.

    Raises OSError.  What is set-user-id is so no more.
    """
    taken = 0
    for directory, _, files in os.walk(top, topdown=False):
        for name in files:
            path = os.path.join(directory, name)
            found = os.lstat(path)
            taken += found.st_blocks * 512
            if not stat.S_ISLNK(found.st_mode):
                _own(path, found, _MODES[bool(found.st_mode & stat.S_IXUSR)])
        _own(directory, os.lstat(directory), _MODES[True])
    return taken


def _own(path: str, found: os.stat_result, mode: int) -> None:
    if found.st_uid != os.geteuid():
        os.chown(path, os.geteuid(), os.getegid())
    if stat.S_IMODE(found.st_mode) != mode:
        os.chmod(path, mode)


def thaw(top: Path) -> None:
    """Let its owner remove a tree that was frozen, or half of one."""
    for directory, _, _ in os.walk(top):
        os.chmod(directory, 0o700)
