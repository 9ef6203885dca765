"""Partial uploads: files of this machine that grow until they are content.

Names on the disk are made of hashes only, so nothing that a user says becomes a path.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from gridbot_server.errors import HashMismatch, StoreFull, TooLarge, UploadBusy, WrongOffset
from gridbot_server.storage.files.store import CHUNK_BYTES, PARTIAL_LIFETIME, Content, Upload


class Partials:
    """The part of a file store that takes uploads; `uploads` is a directory."""

    __slots__ = ()
    uploads: Path

    def _keep(self, path: Path, content: Content) -> None:
        """Make content of a file that is whole; it is not at `path` any more."""
        raise NotImplementedError

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
            return (
                self._complete(upload, path, descriptor, check) if there == upload.size else there
            )

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

    def purge_partials(self, now: datetime) -> int:
        """Delete the uploads of which nothing arrived for a day; return how many."""
        purged = 0
        for path in self.uploads.iterdir():
            with suppress(FileNotFoundError, UploadBusy), _locked(path, create=False) as descriptor:
                if os.fstat(descriptor).st_mtime < (now - PARTIAL_LIFETIME).timestamp():
                    path.unlink()
                    purged += 1
        return purged

    def _complete(
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
        self._keep(path, content)
        return content

    def _partial(self, upload: Upload) -> Path:
        return self.uploads / partial_name(upload)


def partial_name(upload: Upload) -> str:
    """The name of an upload wherever it lies."""
    return hashlib.sha256(f"{upload.sha256} {upload.purpose}".encode()).hexdigest()


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
