"""The subset of HTTP/1.1 in which nearly all requests for work arrive, and polls of open pages.

A request outside this subset is no error: gunicorn's parser reads it, and Flask answers.  So this
knows for work one method, two paths, and a body of known length, and refuses nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

JSON = "application/json"
MAX_HEAD_BYTES = 4096
MAX_FIELDS = 32

_HEAD = re.compile(rb"POST (/rpc|/boinc/scheduler) HTTP/1\.1\r\n((?:[A-Za-z-]+: [ -~]+\r\n)+)\r\n")
_POLL = re.compile(rb"GET (/[A-Za-z0-9/._-]*)\?live HTTP/1\.1\r\n((?:[A-Za-z-]+: [ -~]+\r\n)+)\r\n")
_LENGTH = re.compile(rb"[0-9]{1,9}")
# One with a length, or several, or one without: what follows the head.
_FRAMING = re.compile(
    rb"\r\n(content-length|transfer-encoding|expect)[ \t]*:[ \t]*([^\r\n]*)", re.I
)
# Fields that change the framing of the body or of the answer.
_SPECIAL = {b"transfer-encoding", b"expect", b"upgrade", b"trailer"}


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """The head of a request; its body is at `start`, and with it the request has `size` bytes."""

    path: str
    authorization: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class PagePoll:
    """A page that is open asks what is new; the request has `size` bytes."""

    path: str
    cookie_header: str
    etag: str  # of the content that it shows, "" for none
    size: int


def read(data: bytes, most: int) -> PlainRequest | None:
    """Read the head that `data` begins with, if it is all there, plain, and its body short.

    Short is a body of at most `most` bytes, which need not be there yet.
    """
    head = _HEAD.match(data, 0, MAX_HEAD_BYTES)
    if head is None:
        return None
    fields = _fields_of(head[2])
    if fields is None or _LENGTH.fullmatch(fields.get(b"content-length", b"")) is None:
        return None
    length, start = int(fields[b"content-length"]), head.end()
    if length > most:
        return None
    authorization = fields.get(b"authorization", b"").decode("ascii")
    return PlainRequest(head[1].decode("ascii"), authorization, start, start + length)


def read_poll(data: bytes) -> PagePoll | None:
    """Read the poll of a page that `data` begins with, if it is all there and plain."""
    head = _POLL.match(data, 0, MAX_HEAD_BYTES)
    fields = _fields_of(head[2]) if head else None
    if head is None or fields is None or b"content-length" in fields:
        return None
    cookie_header, etag = (fields.get(name, b"").decode() for name in (b"cookie", b"if-none-match"))
    return PagePoll(head[1].decode(), cookie_header, etag, head.end())


def size_of(data: bytes) -> int | None:
    """Return how many bytes the request has that `data` begins with, if its head is there and says.

    None also when the peer waits for a word before it sends the body.
    """
    end = data.find(b"\r\n\r\n")
    fields = _FRAMING.findall(data, 0, end + 2) if end >= 0 else [()]
    if not fields:
        return end + 4
    if len(fields) > 1 or not fields[0]:
        return None
    name, value = fields[0]
    is_length = name.lower() == b"content-length" and _LENGTH.fullmatch(value)
    return end + 4 + int(value) if is_length else None


def _fields_of(lines: bytes) -> Mapping[bytes, bytes] | None:
    """Return the fields of a head by their names in small letters; None if some are not plain."""
    found = [line.partition(b": ") for line in lines.splitlines()]
    fields = {name.lower(): value for name, _, value in found}
    is_plain = (
        len(fields) == len(found) <= MAX_FIELDS
        and fields.get(b"connection", b"keep-alive").lower() == b"keep-alive"
        and _SPECIAL.isdisjoint(fields)
    )
    return fields if is_plain else None


def answer(
    status: int,
    body: bytes,
    headers: Mapping[str, str],
    keep: bool,
    mimetype: str = JSON,
    second: int | None = None,
) -> bytes:
    """Return an answer; `keep` says whether the connection stays open, `second` what time it is."""
    of_body = f"Content-Type: {mimetype}\r\nContent-Length: {len(body)}\r\n"
    return _head(status, of_body, headers, keep, second) + body


def unchanged(headers: Mapping[str, str], keep: bool) -> bytes:
    """Return the answer to who has the content already: one without a body."""
    return _head(HTTPStatus.NOT_MODIFIED, "", headers, keep, None)


def _head(
    status: int, of_body: str, headers: Mapping[str, str], keep: bool, second: int | None
) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    connection, date = "keep-alive" if keep else "close", _date(second or int(time.time()))
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nDate: {date}\r\n"
        f"Connection: {connection}\r\n{of_body}{lines}\r\n"
    )
    return head.encode("ascii")


@lru_cache(maxsize=1)
def _date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)
