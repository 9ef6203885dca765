"""A request's body that ends early is an error: nothing is done with a part of one."""

from __future__ import annotations

from typing import Protocol

from flask import request

from gridbot_server.errors import RequestError


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


class WholeBody:
    """The body of a request; reading past its early end raises RequestError.

    Gunicorn ends such a body as if it were complete.
    """

    def __init__(self, stream: _Stream, length: int) -> None:
        self._stream, self._length, self._left = stream, length, length

    def read(self, size: int | None = -1) -> bytes:
        """Read at most `size` bytes, all that are left by default; none at the end."""
        wanted = self._left if size is None or size < 0 else min(size, self._left)
        data = self._stream.read(wanted) if wanted else b""
        if wanted and not data:
            raise RequestError(
                f"the body ended after {self._length - self._left} of the {self._length} bytes"
                " that its Content-Length announces"
            )
        self._left -= len(data)
        return data


def insist() -> None:
    """Let the body of the current request be read by `WholeBody`."""
    if length := request.content_length:
        request.environ["wsgi.input"] = WholeBody(request.environ["wsgi.input"], length)
