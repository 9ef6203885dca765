"""The upload handler's texts: what clients ask and send, and what they are answered."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gridbot_server.boinc.protocol.tags import BoincError, Grammar, Section, read
from gridbot_server.credit.markup import block, element

# All that comes before a file's bytes; a client writes about 700.
MAX_HEAD_BYTES = 8192
_DATA = b"<data>\n"

_GRAMMAR = Grammar(
    root="data_server_request",
    inside={
        "": frozenset({"data_server_request"}),
        "data_server_request": frozenset({"file_upload"}),
        "file_upload": frozenset({"file_info"}),
    },
)
_MOST_NAME = 255
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=@-]*")
_MD5 = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class SizeQuery:
    """How much of a file has arrived?"""

    name: str


@dataclass(frozen=True, slots=True)
class UploadRequest:
    """The bytes of a file from `offset` on follow, beginning at byte `data_at` of the body.

    `max_size` is what the certificate (`signature`, perhaps empty) speaks of.
    """

    name: str
    signature: str
    max_size: int
    size: int
    md5: str
    offset: int
    data_at: int

    @property
    def bytes_left(self) -> int:
        """How many bytes the body still holds if it is whole."""
        return self.size - self.offset


def parse(head: bytes, is_all: bool) -> SizeQuery | UploadRequest | None:
    """Read the beginning of a body; None when it takes more bytes to tell what it is.

    `is_all` says that no more will come.  BoincError for what can never become a request.
    """
    text, found, _ = head.partition(_DATA)
    if len(text) > MAX_HEAD_BYTES:
        raise BoincError(f"more than {MAX_HEAD_BYTES} bytes come before the data")
    if found:
        return _upload(text, len(text) + len(_DATA))
    if not is_all:
        return None
    return _size_query(text)


def _size_query(text: bytes) -> SizeQuery:
    part = read(text.decode(errors="replace"), _GRAMMAR)
    if "get_file_size" not in part:
        raise BoincError("neither <get_file_size> nor <data>: there is nothing to do")
    return SizeQuery(_name(part, "get_file_size"))


def _upload(text: bytes, data_at: int) -> UploadRequest:
    # The elements around the data are never ended.
    whole = text.decode(errors="replace") + "</data_server_request>"
    part = read(whole, _GRAMMAR).one("file_upload")
    info = part.one("file_info")
    upload = UploadRequest(
        name=_name(info, "name"),
        signature=info.text("xml_signature", MAX_HEAD_BYTES),
        max_size=_size(info, "max_nbytes"),
        size=_size(part, "nbytes"),
        md5=part.text("md5_cksum").lower(),
        offset=part.integer("offset"),
        data_at=data_at,
    )
    _check(upload)
    return upload


def _check(upload: UploadRequest) -> None:
    if upload.size > upload.max_size:
        raise BoincError(f"{upload.name} has {upload.size} bytes, at most {upload.max_size}")
    if upload.offset > upload.size:
        raise BoincError(f"{upload.name}: offset {upload.offset} is beyond {upload.size} bytes")
    if not _MD5.fullmatch(upload.md5):
        raise BoincError(f"{upload.name}: {upload.md5[:40]!r} is no MD5 in hex")


def _size(part: Section, name: str) -> int:
    size = part.integer(name, default=-1)
    if size < 0:
        raise BoincError(f"<{name}> is missing or no size")
    return size


def _name(part: Section, tag: str) -> str:
    """A name that is one plain file, whatever it is joined to."""
    name = part.text(tag, _MOST_NAME + 1)
    if len(name) > _MOST_NAME or not _NAME.fullmatch(name) or ".." in name:
        raise BoincError(f"{name[:100]!r} is not a usable file name")
    return name


def accepted() -> str:
    """The answer to an upload that is here, now or since before."""
    return _reply(element("status", 0))


def arrived(size: int) -> str:
    """The answer to a size query: 0 for a file that nobody began to upload."""
    return _reply(element("status", 0), element("file_size", size))


def refused(why: str, is_transient: bool) -> str:
    """The answer to an upload that cannot be taken: the client tries again, or gives it up."""
    return _reply(element("status", 1 if is_transient else -1), element("message", why))


def _reply(*lines: str) -> str:
    return block("data_server_reply", *lines)
