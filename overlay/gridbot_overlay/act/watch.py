"""Wakes the constructor when BOTs begin, grow or end: pilots do not wait for its interval."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from gridbot.api.errors import GridbotError
from gridbot_client.backoff import BackOff
from gridbot_overlay.act.server import Server

_WAIT_SECONDS = 20  # of one request
_REST_SECONDS = 1.0  # after an answer that came at once
_PAUSES = BackOff(least=5.0, most=60.0)  # while the server cannot be asked


class DemandWatch:
    """Asks one server, on a connection of its own, until it is closed."""

    def __init__(self, server: Server, changed: Callable[[], None]) -> None:
        self._server, self._changed = server, changed
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="demand", daemon=True).start()

    def close(self) -> None:
        """Wake nobody any more; the request on its way ends by itself."""
        self._closed.set()

    def _run(self) -> None:
        version, failures = "", 0
        while not self._closed.is_set():
            began = time.monotonic()
            try:
                found = self._server.demand_version(version, _WAIT_SECONDS)
            except GridbotError as error:  # the constructor's own question says why
                failures += 1
                self._closed.wait(_PAUSES.after(error, failures, random.random()))  # noqa: S311
                continue
            failures = 0
            if found != version and not self._closed.is_set():
                self._changed()
            version = found
            self._closed.wait(max(0.0, _REST_SECONDS - (time.monotonic() - began)))
