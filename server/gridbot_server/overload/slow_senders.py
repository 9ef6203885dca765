"""Slow-sender deadline: bounds how long a peer that sends slowly can hold a thread (slowloris).

A thread waits `PATIENCE_SECONDS` for its peer in all.  Each byte that arrives extends that, at the
price of `BYTES_PER_SECOND`: a peer at this rate or above may send for as long as its body lasts.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 20.0
BYTES_PER_SECOND = 4096
_LEAST_SECONDS = 1.0


class PacedSocket:
    """A socket from which gunicorn reads one request; TimeoutError once its peer is too slow.

    Only time spent in `recv` counts, so a busy server does not blame its peers.
    """

    def __init__(
        self,
        sock: socket.socket,
        waited: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`waited` is how long (s) the request waited for its thread: it could arrive meanwhile."""
        self._socket, self._clock = sock, clock
        self._patience = max(PATIENCE_SECONDS - waited, _LEAST_SECONDS)

    def recv(self, most: int) -> bytes:
        """Read what has arrived, or wait for it until the deadline."""
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
        # gunicorn logs no error with this number.
        return TimeoutError(errno.ECONNRESET, "the request came too slowly")
