"""Refusals that shed load: 429 and 503, each with the seconds of its Retry-After."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus

import orjson


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
