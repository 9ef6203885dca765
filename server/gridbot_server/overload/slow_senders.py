"""A bound on how long a peer that sends slowly, or not at all, keeps a thread waiting."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from typing import Any

# A thread waits so long for a peer in all, and again as the peer sends at least so fast.
PATIENCE_SECONDS = 20.0
BYTES_PER_SECOND = 4096
_LEAST_SECONDS = 1.0


class PacedSocket:
    """A socket as gunicorn reads one request from it; TimeoutError once its peer is too slow.

    Only the time spent waiting counts, so a server that is slow itself blames nobody.
    """

    def __init__(
        self,
        sock: socket.socket,
        waited: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`waited` is how long the request waited for its thread: time to arrive, too."""
        self._socket, self._clock = sock, clock
        self._patience = max(PATIENCE_SECONDS - waited, _LEAST_SECONDS)

    def recv(self, most: int) -> bytes:
        """Take what is there, or wait for it as long as there is patience."""
        usual, began = self._socket.gettimeout(), self._clock()
        self._socket.settimeout(self._patience if usual is None else min(usual, self._patience))
        try:
            data = self._socket.recv(most)
        except TimeoutError:
            raise self._too_slow() from None
        finally:
            self._socket.settimeout(usual)
        left = self._patience - (self._clock() - began) + len(data) / BYTES_PER_SECOND
        if left <= 0:
            raise self._too_slow()
        self._patience = min(left, PATIENCE_SECONDS)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    @staticmethod
    def _too_slow() -> TimeoutError:
        # By this number gunicorn knows that there is nothing to log.
        return TimeoutError(errno.ECONNRESET, "the request came too slowly")
