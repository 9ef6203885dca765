"""The subset of HTTP/1.1 in which nearly all requests for work arrive, parsed from bytes.

A request outside this subset is no error: gunicorn's parser reads it, and Flask answers.  So this
knows one method, two paths, and a body of known length, and refuses nothing.
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


def read(data: bytes, most: int) -> PlainRequest | None:
    """Read the head that `data` begins with, if it is all there, plain, and its body short.

    Short is a body of at most `most` bytes, which need not be there yet.
    """
    head = _HEAD.match(data, 0, MAX_HEAD_BYTES)
    if head is None:
        return None
    lines = [line.partition(b": ") for line in head[2].splitlines()]
    fields = {name.lower(): value for name, _, value in lines}
    if len(fields) < len(lines) or not _is_plain(fields):
        return None
    length, start = int(fields[b"content-length"]), head.end()
    if length > most:
        return None
    authorization = fields.get(b"authorization", b"").decode("ascii")
    return PlainRequest(head[1].decode("ascii"), authorization, start, start + length)


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


def _is_plain(fields: Mapping[bytes, bytes]) -> bool:
    return (
        len(fields) <= MAX_FIELDS
        and _LENGTH.fullmatch(fields.get(b"content-length", b"")) is not None
        and fields.get(b"connection", b"keep-alive").lower() == b"keep-alive"
        and _SPECIAL.isdisjoint(fields)
    )


def answer(
    status: int,
    body: bytes,
    headers: Mapping[str, str],
    keep: bool,
    mimetype: str = JSON,
    second: int | None = None,
) -> bytes:
    """Return an answer; `keep` says whether the connection stays open, `second` what time it is."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    connection, date = "keep-alive" if keep else "close", _date(second or int(time.time()))
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nDate: {date}\r\n"
        f"Connection: {connection}\r\nContent-Type: {mimetype}\r\n"
        f"Content-Length: {len(body)}\r\n{lines}\r\n"
    )
    return head.encode("ascii") + body


@lru_cache(maxsize=1)
def _date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)
