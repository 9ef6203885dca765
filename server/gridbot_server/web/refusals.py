"""Whole answers that shed load, rendered once for many clients."""

from __future__ import annotations

from functools import lru_cache
from http import HTTPStatus

from gridbot_server.http import answers
from gridbot_server.overload.refusals import Refusal
from gridbot_server.web import fast_http

# Refusals of one second carry few different values of Retry-After.
_kept = lru_cache(maxsize=256)


@_kept
def to_native(refusal: Refusal, keep: bool, second: int) -> bytes:
    """The whole answer to a native client, as of a second of the clock."""
    headers = {**refusal.headers, **answers.HARDENING}
    return fast_http.answer(refusal.status, refusal.body, headers, keep, second=second)


@_kept
def in_body(text: str, mimetype: str, keep: bool, second: int) -> bytes:
    """The whole answer in a protocol whose clients read a refusal in the body, not the status."""
    body, headers = text.encode(), answers.HARDENING
    return fast_http.answer(HTTPStatus.OK, body, headers, keep, mimetype, second=second)


def to_tls() -> bytes:
    """The answer to a peer that speaks TLS: no TLS, so that its library says so at once."""
    return fast_http.answer(
        HTTPStatus.BAD_REQUEST,
        b"this port speaks plain HTTP\n",
        answers.HARDENING,
        False,
        "text/plain",
    )
