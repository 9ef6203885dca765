"""What is said to clients that are told to come back later, rendered once for many of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus

import orjson

from gridbot_server.http import answers
from gridbot_server.web import fast_http


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not served, and how many seconds later it may be."""

    status: HTTPStatus
    error: str
    detail: str
    seconds: int

    @property
    def body(self) -> bytes:
        """The JSON document that tells of it."""
        return orjson.dumps({"error": self.error, "detail": self.detail, "retry": True})

    @property
    def headers(self) -> Mapping[str, str]:
        """Those beside the usual ones."""
        return {"Retry-After": str(self.seconds)}


# Clients that are refused within a second are told few different times.
_kept = lru_cache(maxsize=256)


@_kept
def overloaded(seconds: int) -> Refusal:
    """More requests come than can be answered."""
    detail = "more requests come than this server can answer: come back later"
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "ServerBusy", detail, seconds)


@_kept
def too_often(seconds: int) -> Refusal:
    """One client makes more requests than any needs."""
    detail = "this client asks too often: come back later"
    return Refusal(HTTPStatus.TOO_MANY_REQUESTS, "TooManyRequests", detail, seconds)


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
