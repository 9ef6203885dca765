"""Whom a web process lets in with a request for work, before anything of it is decoded."""

from __future__ import annotations

import re
import secrets
import time

from gridbot_server.overload.admission import Admission
from gridbot_server.overload.rate_limit import RateLimiter
from gridbot_server.web import refusals
from gridbot_server.web.refusals import Refusal

# What a client that asks too often is told to wait.
_PAUSE_SECONDS = 60

# No text in a request can hold it: the quotes of texts are escaped.
_REPORTS = re.compile(rb'"reports"\s*:\s*\[\s*[^\s\]]')


class Door:
    """One per process.  `per_minute` is how many requests a client may make, and make at once."""

    def __init__(self, per_minute: int, processes: int) -> None:
        self.admission = Admission(time.monotonic())
        interval = 60.0 / per_minute * processes
        self._clients = RateLimiter(secrets.token_bytes(32), per_minute, interval)

    def refusal(self, client: str, has_reports: bool) -> Refusal | None:
        """Why a request must wait, if it must; `client` names who sends it."""
        now = time.monotonic()
        if not self._clients.take(client, now):
            return refusals.too_often(_PAUSE_SECONDS)
        if not self.admission.admits(has_reports):
            return self.overloaded()
        return None

    def overloaded(self) -> Refusal:
        """When a client that cannot be served now is to come again."""
        return refusals.overloaded(self.admission.retry_seconds(time.monotonic()))


def brings_reports(body: bytes) -> bool:
    """Whether a native client's request carries reports, as far as a look tells."""
    return _REPORTS.search(body) is not None


def native_client(authorization: str) -> str:
    """What all requests of a native client have in common: its token, however it is sent."""
    return authorization.partition(" ")[2].strip()
