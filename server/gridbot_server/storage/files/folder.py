"""The file store in a directory, which several servers may share.

Names on the disk are made of hashes only, so nothing that a user says becomes a path.
A file appears whole, by rename.  Content that was returned is *pushed*, in Kangaroo's word: it and
the names that lead to it are on the disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from gridbot_client.filesystem import sync_directory, time_at
from gridbot_server.storage.disk import write_atomically
from gridbot_server.storage.files.partials import Partials
from gridbot_server.storage.files.store import Content, Destination, Upload

_ASIDE = "going-"  # before the hash of a file that is looked at once more
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class FolderStore(Partials):
    """A directory of content and a directory of partial uploads on the same file system."""

    root: Path
    uploads: Path
    # Folders of contents whose names are on the disk, as far as this process knows.
    _synced: set[str] = field(default_factory=set, compare=False, repr=False)

    def __str__(self) -> str:
        return str(self.root)

    def path(self, sha256: str) -> Path:
        """Return where the content lies or would lie."""
        return self.root / sha256[:2] / sha256[2:]

    def size(self, sha256: str) -> int | None:
        """Return how many bytes the content has; None when it is not here."""
        try:
            return self.path(sha256).lstat().st_size
        except FileNotFoundError:
            return None

    def open(self, sha256: str) -> BinaryIO:
        """Open content for reading; raise FileNotFoundError when it is not here."""
        return os.fdopen(os.open(self.path(sha256), os.O_RDONLY | os.O_NOFOLLOW), "rb")

    def beginning(self, sha256: str, most: int) -> bytes | None:
        """Return the first bytes of content, at most `most`; None when it is not here."""
        try:
            with self.open(sha256) as file:
                return file.read(most)
        except FileNotFoundError:
            return None

    def local(self, sha256: str) -> Path:
        """Return where programs of this machine find the content, if it is here."""
        return self.path(sha256)

    def link(self, sha256: str, now: datetime) -> str:  # noqa: ARG002 (no URL leads to a folder)
        """There is no URL: this server sends what is in a folder."""
        return ""

    @property
    def takes_parts(self) -> bool:
        """All uploads come through this server."""
        return False

    def destination(self, upload: Upload, offset: int, now: datetime) -> Destination:
        """Nobody asks: a folder takes no parts."""
        raise NotImplementedError

    def finish(self, upload: Upload) -> Content | int:
        """Nobody asks: a folder takes no parts."""
        raise NotImplementedError

    def _keep(self, path: Path, content: Content) -> None:
        final = self.path(content.sha256.hex())
        with suppress(FileExistsError):
            final.parent.mkdir(mode=0o700)
        if final.parent.name not in self._synced:  # who made it may have been killed before
            sync_directory(self.root)
            self._synced.add(final.parent.name)
        path.replace(final)
        sync_directory(final.parent)

    def now(self) -> datetime:
        """Return the present time by the file system's clock, which may be another machine's."""
        return datetime.fromtimestamp(time_at(self.uploads), UTC)

    def old(self, prefix: int, before: datetime) -> Iterator[str]:
        """Yield the hashes that begin with this byte, of content stored before a time."""
        for aside in self.uploads.glob(f"{_ASIDE}*"):  # where a removal was killed
            self._settle(aside, before)
        folder = self.root / f"{prefix:02x}"
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                sha256 = folder.name + entry.name
                with suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    if _SHA256.fullmatch(sha256) and _is_old(found, before):
                        yield sha256

    def remove(self, sha256: str, before: datetime) -> bool:
        """Remove content, unless it was stored again since that time; whether it went.

        It is moved before it is looked at, to where nobody replaces it.
        """
        aside = self.uploads / f"{_ASIDE}{sha256}"
        try:
            self.path(sha256).rename(aside)
        except FileNotFoundError:
            return False
        return self._settle(aside, before)

    def _settle(self, aside: Path, before: datetime) -> bool:
        """Remove a file that was moved aside, or put it back if it is young; whether it went."""
        is_old = _is_old(aside.lstat(), before)
        if not is_old:
            final = self.path(aside.name.removeprefix(_ASIDE))
            with suppress(FileExistsError):  # a still younger one
                os.link(aside, final)
            sync_directory(final.parent)
        aside.unlink()
        return is_old

    def read_note(self, name: str) -> bytes | None:
        """Return the note of that name; None without one."""
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def write_note(self, name: str, text: str) -> None:
        """Write a note, at once or not at all."""
        write_atomically(self.root / name, text)

    def remove_note(self, name: str) -> None:
        """Remove a note, if it is there."""
        (self.root / name).unlink(missing_ok=True)


def _is_old(found: os.stat_result, before: datetime) -> bool:
    return found.st_mtime < before.timestamp()
