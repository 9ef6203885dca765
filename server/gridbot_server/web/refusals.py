"""Answers that shed load: 429 and 503 with Retry-After, rendered once for many clients."""

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
    """Why a request is not served, and its Retry-After in seconds."""

    status: HTTPStatus
    error: str
    detail: str
    seconds: int

    @property
    def body(self) -> bytes:
        """The JSON document of the error."""
        return orjson.dumps({"error": self.error, "detail": self.detail, "retry": True})

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers beside those of every answer."""
        return {"Retry-After": str(self.seconds)}


# Refusals of one second carry few different values of Retry-After.
_kept = lru_cache(maxsize=256)


@_kept
def overloaded(seconds: int) -> Refusal:
    """Load shedding: more requests come than this process can answer."""
    detail = "more requests come than this server can answer: come back later"
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "ServerBusy", detail, seconds)


@_kept
def too_often(seconds: int) -> Refusal:
    """Rate limit: one client makes more requests than any needs."""
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
