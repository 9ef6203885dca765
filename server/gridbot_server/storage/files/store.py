"""What a file store does, wherever it keeps its content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Protocol

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
class Destination:
    """Where an uploader sends its next part itself, and with which headers, by PUT."""

    url: str
    size: int  # of the part, in bytes
    headers: dict[str, str]


class Store(Protocol):
    """Content by its SHA-256 (hex), partial uploads, and two notes about the database.

    Several servers may share one.  Content appears whole, and once its hashes are known.  An
    object store that does not answer is StoreAway, and one without room StoreFull.
    """

    def size(self, sha256: str) -> int | None:
        """Return how many bytes the content has; None when it is not here."""

    def open(self, sha256: str) -> BinaryIO:
        """Open content for reading; raise FileNotFoundError when it is not here."""

    def beginning(self, sha256: str, most: int) -> bytes | None:
        """Return the first bytes of content, at most `most`; None when it is not here."""

    def local(self, sha256: str) -> Path:
        """Return where programs of this machine find the content, if it is here."""

    def link(self, sha256: str, now: datetime) -> str:
        """Return a URL at which anybody may fetch the content for an hour; "" if there is none."""

    def offset(self, upload: Upload) -> int:
        """Return how many bytes of an upload have arrived."""

    def receive(
        self, upload: Upload, offset: int, chunks: Callable[[int], bytes],
        check: Callable[[BinaryIO], None] = lambda _: None,
    ) -> Content | int:  # fmt: skip
        """Append a body to an upload; return its content when complete, else the bytes there now.

        `chunks` reads up to so many bytes of the body, none at its end.  What arrived
        before it broke off stays.  Raises WrongOffset, UploadBusy, TooLarge, StoreFull, and
        HashMismatch after discarding what was received; so does whatever `check` raises, which
        sees the whole file before it is content.
        """

    def rewind(self, upload: Upload, offset: int) -> None:
        """Forget what arrived from `offset` on, for an uploader that begins there again."""

    def put(self, size: int, read: Callable[[int], bytes]) -> Content:
        """Keep `size` bytes that are at hand, whatever they hash to."""

    @property
    def takes_parts(self) -> bool:
        """Whether uploaders may send to the store itself, past this server."""

    def destination(self, upload: Upload, offset: int, now: datetime) -> Destination:
        """Return where the part from `offset` on is sent.  Raises WrongOffset."""

    def finish(self, upload: Upload) -> Content | int:
        """Make content of an upload whose parts were sent to the store; or say how far it is.

        Raises HashMismatch after discarding what was sent.
        """

    def now(self) -> datetime:
        """Return the present time by the clock that dates what is here."""

    def purge_partials(self, now: datetime) -> int:
        """Delete the uploads of which nothing arrived for a day; return how many."""

    def old(self, prefix: int, before: datetime) -> Iterator[str]:
        """Yield the hashes that begin with this byte, of content stored before a time."""

    def remove(self, sha256: str, before: datetime) -> bool:
        """Remove content, unless it was stored again since that time; whether it went."""

    def read_note(self, name: str) -> bytes | None:
        """Return the note of that name; None without one."""

    def write_note(self, name: str, text: str) -> None:
        """Write a note, at once or not at all."""

    def remove_note(self, name: str) -> None:
        """Remove a note, if it is there."""


def read_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Read an open file to its end, and close it."""
    with file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
