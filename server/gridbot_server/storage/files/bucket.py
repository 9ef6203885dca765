"""The file store in a bucket of an object store: clients move content without this server.

Theory of operation
===================

    PREFIX/files/ab/cdef...      content, by its SHA-256
    PREFIX/uploads/NAME          what is being uploaded; the name is a hash
    PREFIX/store.json ...        the notes about the database

A download is a redirection to a URL that is signed when it is asked for.  The time in it is
rounded down to the hour, so that for an hour the URL is the same, and caches serve it.

An upload is sent by its client in parts, each to a URL that is signed for that part's length.
An upload of one part is signed for its hash as well, which the store then checks.  Whatever the
store checks, the whole is read and hashed here before it becomes content: by a copy within the
store, of just the object that was read.  How far an upload has come is known to the store alone,
so any server of several goes on with it.

What comes through this server (from stock BOINC clients, and clients of before) lies in the folder
of partial uploads until it is whole.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, cast

from gridbot_server.errors import HashMismatch, WrongOffset
from gridbot_server.storage.files.partials import Partials, partial_name
from gridbot_server.storage.files.s3 import Bucket, Part, checksum
from gridbot_server.storage.files.store import (
    PARTIAL_LIFETIME,
    Content,
    Destination,
    Upload,
)

PART_BYTES = 16 << 20  # of an upload; a store takes no part below 5 MiB but the last
_LINK_SECONDS = 3600  # for which a download's URL stays the same; it is good for twice that
_PART_SECONDS = 3600  # for which a part's URL is good
_FILES, _UPLOADS = "files/", "uploads/"
# A stranger's output is saved, never shown as a page of the store.
_SAVED = {
    "response-content-disposition": "attachment",
    "response-content-type": "application/octet-stream",
}


@dataclass(frozen=True, slots=True)
class BucketStore(Partials):
    """A bucket, and a directory for what comes through this server."""

    bucket: Bucket
    uploads: Path

    def __str__(self) -> str:
        return str(self.bucket.place)

    def size(self, sha256: str) -> int | None:
        """Return how many bytes the content has; None when it is not here."""
        found = self.bucket.head(_key(sha256))
        return found.size if found else None

    def open(self, sha256: str) -> BinaryIO:
        """Open a copy of content; raise FileNotFoundError when it is not here."""
        copy = cast(BinaryIO, tempfile.TemporaryFile(dir=self.uploads))  # noqa: SIM115 (the caller's)
        try:
            self._fetch(sha256, copy)
        except BaseException:
            copy.close()
            raise
        copy.seek(0)
        return copy

    def beginning(self, sha256: str, most: int) -> bytes | None:
        """Return the first bytes of content, at most `most`; None when it is not here."""
        return self.bucket.beginning(_key(sha256), most)

    def local(self, sha256: str) -> Path:
        """Return a copy of the content, which is there for a day; if it is in the bucket."""
        path = self.uploads / f"copy-{sha256}"
        if path.exists():
            path.touch()
            return path
        with suppress(FileNotFoundError), tempfile.NamedTemporaryFile(dir=self.uploads) as copy:
            self._fetch(sha256, cast(BinaryIO, copy))
            copy.flush()
            with suppress(FileExistsError):
                path.hardlink_to(copy.name)
        return path

    def _fetch(self, sha256: str, copy: BinaryIO) -> None:
        with self.bucket.stream(_key(sha256)) as found:
            if found is None:
                raise FileNotFoundError(f"{self} has no file {sha256}")
            for chunk in found[1]:
                copy.write(chunk)

    def link(self, sha256: str, now: datetime) -> str:
        """Return a URL at which anybody may fetch the content for an hour or two."""
        hour = datetime.fromtimestamp(now.timestamp() // _LINK_SECONDS * _LINK_SECONDS, now.tzinfo)
        return self.bucket.presigned("GET", _key(sha256), hour, 2 * _LINK_SECONDS, _SAVED)

    def _keep(self, path: Path, content: Content) -> None:
        """Make content of a file that is whole, and remove it here."""
        with path.open("rb") as file:
            # An open file without bytes would be sent in chunks, which S3 does not take.
            body = file if content.size else b""
            self.bucket.write(_key(content.sha256.hex()), body, content.sha256.hex())
        path.unlink()

    # ------------------------------------------------------------- uploads past this server

    @property
    def takes_parts(self) -> bool:
        """Uploaders send to the bucket itself."""
        return True

    def offset(self, upload: Upload) -> int:
        """Return how many bytes of an upload have arrived, here or in the bucket."""
        return Partials.offset(self, upload) or self._arrived(upload)[0]

    def _arrived(self, upload: Upload) -> tuple[int, str, list[Part]]:
        """Bytes in the bucket, and of a multipart upload its id and its parts."""
        key = _upload_key(upload)
        whole = self.bucket.head(key)
        if whole and whole.size == upload.size:
            return upload.size, "", []
        if upload.size <= PART_BYTES:
            return 0, "", []
        # Two servers may have begun one at once: the first counts.
        begun = sorted((item.begun_at, item.id) for item in self.bucket.begun(key))
        if not begun:
            return 0, "", []
        id = begun[0][1]
        parts = self.bucket.parts(key, id)
        whole_parts = [part for number, part in enumerate(parts, 1) if part.number == number]
        return sum(part.size for part in whole_parts), id, whole_parts

    def destination(self, upload: Upload, offset: int, now: datetime) -> Destination:
        """Return where the part from `offset` on is sent.  Raises WrongOffset."""
        there, id, parts = self._arrived(upload)
        if offset != there:
            raise WrongOffset(f"offset {offset} is not {there}", offset=there)
        key, size = _upload_key(upload), min(PART_BYTES, upload.size - offset)
        signed, query = {"content-length": str(size)}, dict[str, str]()
        headers = checksum(upload.sha256) if upload.size <= PART_BYTES else {}
        if upload.size > PART_BYTES:
            id = id or self.bucket.begin(key)
            query = {"partNumber": str(len(parts) + 1), "uploadId": id}
        url = self.bucket.presigned("PUT", key, now, _PART_SECONDS, query, {**signed, **headers})
        return Destination(url, size, headers)

    def finish(self, upload: Upload) -> Content | int:
        """Make content of an upload that is in the bucket, if it is what was announced."""
        if upload.size == 0:
            return self.put(0, io.BytesIO().read)
        key = _upload_key(upload)
        there, id, parts = self._arrived(upload)
        if there < upload.size:
            return there
        if parts:
            self.bucket.complete(key, id, parts)
        found = self._hashed(key)
        if found is None:
            return 0
        content, etag = found
        if (content.sha256.hex(), content.size) != (upload.sha256, upload.size):
            self.bucket.delete(key)
            raise HashMismatch(
                f"the {content.size} bytes hash to {content.sha256.hex()}, not to {upload.sha256}:"
                " discarded, start over"
            )
        self.bucket.copy(key, _key(upload.sha256), etag)
        self.bucket.delete(key)
        return content

    def _hashed(self, key: str) -> tuple[Content, str] | None:
        """Read an object; return what it is, and its ETag."""
        sha256, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
        with self.bucket.stream(key) as found:
            if found is None:
                return None
            etag, chunks = found
            for chunk in chunks:
                sha256.update(chunk)
                md5.update(chunk)
                size += len(chunk)
        return Content(sha256.digest(), md5.digest(), size), etag

    # -------------------------------------------------------------------------------- upkeep

    def now(self) -> datetime:
        """Return this machine's time: S3 refuses one that is off by more than 15 minutes."""
        return datetime.now(UTC)

    def purge_partials(self, now: datetime) -> int:
        """Delete the uploads of which nothing arrived for a day; return how many."""
        before, purged = now - PARTIAL_LIFETIME, Partials.purge_partials(self, now)
        for begun in self.bucket.begun(_UPLOADS):
            if begun.begun_at < before:
                self.bucket.abort(begun.key, begun.id)
                purged += 1
        for found in self.bucket.objects(_UPLOADS):
            if found.stored_at < before:
                self.bucket.delete(found.key)
                purged += 1
        return purged

    def old(self, prefix: int, before: datetime) -> Iterator[str]:
        """Yield the hashes that begin with this byte, of content stored before a time."""
        for found in self.bucket.objects(f"{_FILES}{prefix:02x}/"):
            if found.stored_at < before:
                yield found.key.removeprefix(_FILES).replace("/", "")

    def remove(self, sha256: str, before: datetime) -> bool:
        """Remove content, unless it was stored again since that time; whether it went.

        S3 has no removal under that condition: who stores content looks once more whether it is
        there when its row is written (`api/uploads.py`).
        """
        found = self.bucket.head(_key(sha256))
        if found is None or found.stored_at >= before:
            return False
        self.bucket.delete(found.key)
        return True

    def read_note(self, name: str) -> bytes | None:
        """Return the note of that name; None without one."""
        return self.bucket.read(name)

    def write_note(self, name: str, text: str) -> None:
        """Write a note; S3 replaces objects at once."""
        body = text.encode()
        self.bucket.write(name, body, hashlib.sha256(body).hexdigest())

    def remove_note(self, name: str) -> None:
        """Remove a note, if it is there."""
        self.bucket.delete(name)


def _key(sha256: str) -> str:
    return f"{_FILES}{sha256[:2]}/{sha256[2:]}"


def _upload_key(upload: Upload) -> str:
    return _UPLOADS + partial_name(upload)
