"""The gate of a web process: refuses requests for work before anything of them is decoded.

A request passes two checks, each of which costs a few microseconds and no database:

| check             | refuses a request when                               | answer           |
|-------------------|------------------------------------------------------|------------------|
| rate limit        | its client asks more often than any needs            | 429, Retry-After |
| admission control | as many wait as two transactions can serve           | 503, Retry-After |
"""

from __future__ import annotations

import re
import secrets
import time

from gridbot_server.overload import refusals
from gridbot_server.overload.admission import Admission
from gridbot_server.overload.rate_limit import RateLimiter
from gridbot_server.overload.refusals import Refusal

# Retry-After of a client over its rate limit.
_PAUSE_SECONDS = 60

# No text in a request can hold it: the quotes of texts are escaped.
_REPORTS = re.compile(rb'"reports"\s*:\s*\[\s*[^\s\]]')


class Gate:
    """Rate limit per client and admission control of one web process.

    A client may make `per_minute` requests at once and then as many a minute, in all `processes`
    together; each of them keeps its share.
    """

    def __init__(self, per_minute: int, processes: int) -> None:
        self.admission = Admission(time.monotonic())
        interval = 60.0 / per_minute * processes
        self._clients = RateLimiter(secrets.token_bytes(32), per_minute, interval)

    def refusal(self, client: str, has_reports: bool) -> Refusal | None:
        """Why a request is refused, or None; `client` is the key of its rate limit."""
        now = time.monotonic()
        if not self._clients.take(client, now):
            return refusals.too_often(_PAUSE_SECONDS)
        if not self.admission.admits(has_reports):
            return self.overloaded()
        return None

    def overloaded(self) -> Refusal:
        """The refusal of a request for which there is no room, with its Retry-After."""
        return refusals.overloaded(self.admission.retry_seconds(time.monotonic()))


def brings_reports(body: bytes) -> bool:
    """Whether a native client's request carries reports; found without decoding it."""
    return _REPORTS.search(body) is not None


def native_client(authorization: str) -> str:
    """The key of a native client's rate limit: its token."""
    return authorization.partition(" ")[2].strip()
