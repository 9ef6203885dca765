"""Stands before a port of this machine, and counts the bytes that come from it."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_CHUNK_BYTES = 256 << 10


class Meter(socketserver.ThreadingTCPServer):
    """Passes connections on as they are; what comes from behind waits while it is held."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, port_behind: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.port_behind = port_behind
        self.port = int(self.server_address[1])
        self.passed = 0  # bytes from behind
        self._lock = threading.Condition()
        self._most: int | None = None

    def hold_at(self, most: int) -> None:
        """Let nothing more come once so many bytes have come."""
        self._most = most

    def go_on(self) -> None:
        """Let all come."""
        with self._lock:
            self._most = None
            self._lock.notify_all()

    def count(self, size: int) -> None:
        """Count what is about to be passed; returns when it may."""
        with self._lock:
            self.passed += size
            self._lock.wait_for(lambda: self._most is None or self.passed <= self._most)


class _Connection(socketserver.BaseRequestHandler):
    server: Meter

    def handle(self) -> None:
        with (
            suppress(OSError),
            socket.create_connection(("127.0.0.1", self.server.port_behind)) as there,
        ):
            forth = threading.Thread(target=_pump, args=(self.request, there), daemon=True)
            forth.start()
            _pump(there, self.request, self.server)
            forth.join()


def _pump(source: socket.socket, target: socket.socket, meter: Meter | None = None) -> None:
    """Pass bytes on until there are no more, or one side is gone."""
    with suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            if meter:
                meter.count(len(data))
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR if end is source else socket.SHUT_WR)


@contextmanager
def meter(port_behind: int) -> Iterator[Meter]:
    """A meter that runs."""
    with Meter(port_behind) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield made
        finally:
            made.go_on()
            made.shutdown()
            thread.join()
