"""The file store: content by its SHA-256, and the partial uploads that become content.

Names on the disk are made of hashes only, so nothing that a user says becomes a path.
Several servers may share one store: a file appears there whole, by rename.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from gridbot_server.errors import HashMismatch, StoreFull, TooLarge, UploadBusy, WrongOffset

CHUNK_BYTES = 256 * 1024
PARTIAL_LIFETIME = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Upload:
    """What is being uploaded: for which purpose, what it must hash to (hex), how long it is.

    Uploads of one content for two purposes do not see each other: one uploader
    cannot disturb another's, nor claim a content without sending it.  An uploader that knows
    the MD5 only leaves the SHA-256 empty; without either, all content is right.
    """

    purpose: str
    sha256: str
    size: int
    md5: str = ""


@dataclass(frozen=True, slots=True)
class Content:
    """A file of the store, by both hashes that the protocols speak."""

    sha256: bytes
    md5: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Store:
    """A directory of content and a directory of partial uploads on the same file system."""

    root: Path
    uploads: Path

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

    def offset(self, upload: Upload) -> int:
        """Return how many bytes of an upload have arrived."""
        try:
            return self._partial(upload).lstat().st_size
        except FileNotFoundError:
            return 0

    def receive(
        self,
        upload: Upload,
        offset: int,
        chunks: Callable[[int], bytes],
        check: Callable[[BinaryIO], None] = lambda _: None,
    ) -> Content | int:
        """Append a body to an upload; return its content when complete, else the bytes there now.

        `chunks` reads up to so many bytes of the body, none at its end.  What arrived
        before it broke off stays, on the disk.  Raises WrongOffset, UploadBusy,
        TooLarge, StoreFull, and HashMismatch after discarding what was received; so does
        whatever `check` raises, which sees the whole file before it is content.
        """
        path = self._partial(upload)
        with _locked(path) as descriptor:
            there = os.fstat(descriptor).st_size
            if offset != there:
                raise WrongOffset(f"offset {offset} is not {there}", offset=there)
            try:
                there += _append(descriptor, upload.size - there, chunks)
            finally:
                os.fsync(descriptor)
            return self._keep(upload, path, descriptor, check) if there == upload.size else there

    def rewind(self, upload: Upload, offset: int) -> None:
        """Forget what arrived from `offset` on, for an uploader that begins there again."""
        if offset < self.offset(upload):
            with _locked(self._partial(upload)) as descriptor:
                os.ftruncate(descriptor, offset)

    def put(self, size: int, read: Callable[[int], bytes]) -> Content:
        """Keep `size` bytes that are at hand, whatever they hash to."""
        # A name of its own for each: two that keep the same at once do not meet.
        kept = self.receive(Upload(f"at hand {secrets.token_hex(16)}", "", size), 0, read)
        assert isinstance(kept, Content), "all bytes are there"
        return kept

    def _keep(
        self, upload: Upload, path: Path, descriptor: int, check: Callable[[BinaryIO], None]
    ) -> Content:
        content = _content(descriptor)
        sha256, md5 = content.sha256.hex(), content.md5.hex()
        found, wanted = (sha256, upload.sha256) if upload.sha256 else (md5, upload.md5)
        if wanted and found != wanted:
            path.unlink()
            raise HashMismatch(
                f"the {upload.size} bytes hash to {found}, not to {wanted}: discarded, start over"
            )
        _check(path, descriptor, check)
        final = self.path(sha256)
        with suppress(FileExistsError):
            final.parent.mkdir(mode=0o700)
            _sync_directory(self.root)
        path.replace(final)
        _sync_directory(final.parent)
        return content

    def _partial(self, upload: Upload) -> Path:
        name = hashlib.sha256(f"{upload.sha256} {upload.purpose}".encode()).hexdigest()
        return self.uploads / name


def purge_partials(store: Store, now: datetime) -> int:
    """Delete the uploads of which nothing arrived for a day; return how many."""
    purged = 0
    for path in store.uploads.iterdir():
        with suppress(FileNotFoundError, UploadBusy), _locked(path, create=False) as descriptor:
            if os.fstat(descriptor).st_mtime < (now - PARTIAL_LIFETIME).timestamp():
                path.unlink()
                purged += 1
    return purged


def read_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Read an open file to its end, and close it."""
    with file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


@contextmanager
def _locked(path: Path, create: bool = True) -> Iterator[int]:
    """Open a partial upload for this request alone, even among several servers."""
    flags = os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        _lock(descriptor)
        # Between open and lock another request may have completed or purged it.
        if not _is_at(path, descriptor):
            raise UploadBusy("this upload has just ended in another request, ask where it stands")
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UploadBusy("another request is sending this upload, try again") from None


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the open file still has that name; completed, it has the content's."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _append(descriptor: int, most: int, chunks: Callable[[int], bytes]) -> int:
    """Write the body to the end of the file; return how many bytes it had, at most `most`."""
    os.lseek(descriptor, 0, os.SEEK_END)
    written = 0
    while chunk := chunks(CHUNK_BYTES):
        if written + len(chunk) > most:
            raise TooLarge(f"the body goes on after the {most} bytes that were announced")
        write_all(descriptor, chunk)
        written += len(chunk)
    return written


def write_all(descriptor: int, chunk: bytes) -> None:
    """Write a whole chunk; raise StoreFull when the disk has no room for it."""
    view = memoryview(chunk)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull("the server's file store is full, try again later") from None
        raise


def _content(descriptor: int) -> Content:
    """Hash the whole file again: earlier parts may have been written by another process."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    sha256, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    while chunk := os.read(descriptor, CHUNK_BYTES):
        sha256.update(chunk)
        md5.update(chunk)
        size += len(chunk)
    return Content(sha256.digest(), md5.digest(), size)


def _check(path: Path, descriptor: int, check: Callable[[BinaryIO], None]) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        with os.fdopen(os.dup(descriptor), "rb") as file:
            check(file)
    except BaseException:
        path.unlink()
        raise


def _sync_directory(path: Path) -> None:
    """Make a new name in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
