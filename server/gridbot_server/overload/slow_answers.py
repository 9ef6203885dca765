"""Deadline for peers that this server asks: one that answers a byte a second is broken off."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def broken_off(link: socket.socket, ends_at: float) -> Iterator[None]:
    """Break a connection off at a time (monotonic seconds)."""
    twin = link.dup()  # TLS takes the other one over

    def break_off() -> None:
        with suppress(OSError):  # it has ended by itself
            twin.shutdown(socket.SHUT_RDWR)

    ending = threading.Timer(max(0.0, ends_at - time.monotonic()), break_off)
    ending.daemon = True
    ending.start()
    try:
        yield
    finally:
        ending.cancel()
        twin.close()
