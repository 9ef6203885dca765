"""Slow-reader deadline: bounds how long a peer that reads slowly can hold a thread (slow read).

Long answers are sent by threads, in transfer slots (`overload/transfer_slots.py`).  A thread waits
`PATIENCE_SECONDS` for its peer in all, and each piece that is sent extends that, at the price of
`BYTES_PER_SECOND`.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flask import Response, request

from gridbot_server.http.services import current
from gridbot_server.overload.slow_senders import PATIENCE_SECONDS
from gridbot_server.overload.transfer_slots import Party, Slots

BYTES_PER_SECOND = 8192
PIECE_BYTES = 128 * 1024  # sent at once: fewer cost more
_LEAST_SECONDS = 1.0
# Fits into the send buffer of any connection: no thread waits until it is read.
UNBOUNDED_BYTES = 32 * 1024
# Limit of what waits in the kernel: its buffers of megabytes would hide how slow a peer is.
_UNSENT_BYTES = 256 * 1024


def bounded(response: Response, party: Party) -> Response:
    """Let an answer be sent in a download slot; raise ServerBusy when there is none.

    A short one needs no slot.  The answer must not be changed any more.
    """
    slots, size = current().downloads, response.headers.get("Content-Length", type=int)
    if size is None or size > UNBOUNDED_BYTES:
        slots.take(party)
        sock: socket.socket | None = request.environ.get("gunicorn.socket")
        response.response = _Body(response.response, sock, slots, party)
    return response


class _Body:
    """The body of an answer; the server closes it however sending ends."""

    def __init__(
        self, source: Iterable[Any], sock: socket.socket | None, slots: Slots, party: Party
    ) -> None:
        self._source, self._socket = source, sock
        self._slots, self._party = slots, party
        self._is_open = True

    def __iter__(self) -> Iterator[bytes]:
        pieces = _pieces(self._source)
        return paced(pieces, self._socket) if self._socket else pieces

    def close(self) -> None:
        """Close what it is read from, and give the slot back."""
        if self._is_open:
            self._is_open = False
            self._slots.release(self._party)
            if close := getattr(self._source, "close", None):
                close()


def paced(
    pieces: Iterable[bytes], sock: socket.socket, clock: Callable[[], float] = time.monotonic
) -> Iterator[bytes]:
    """Yield pieces to be sent; raise ConnectionResetError once the peer takes them too slowly.

    Only the time of sending counts, so a busy server does not blame its peers.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
    left = PATIENCE_SECONDS
    for piece in pieces:
        left += len(piece) / BYTES_PER_SECOND
        sock.settimeout(max(left, _LEAST_SECONDS))
        began = clock()
        yield piece
        left = min(left - (clock() - began), PATIENCE_SECONDS)
        if left <= 0:
            # gunicorn logs no error with this number.
            raise ConnectionResetError(errno.ECONNRESET, "the answer was taken too slowly")


def _pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        for start in range(0, len(chunk), PIECE_BYTES):
            yield chunk[start : start + PIECE_BYTES]
