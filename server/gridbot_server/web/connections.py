"""Gunicorn's threaded worker, with connections that cost little when there are many of them.

Who owns a connection in which state is told in `worker.py`.
"""

from __future__ import annotations

import errno
import selectors
import socket
import time
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, Literal

from gunicorn.workers.gthread import TConn, ThreadWorker

from gridbot_server import metrics

# New connections per turn of the loop: those that are open are served in between.
_ACCEPTED_AT_ONCE = 512
# Time that a peer has to read the last answer and to close its end.
_LINGER_SECONDS = 2.0
_DRAIN_BYTES = 1 << 16
# No connection waits, or it was closed again.
_NOBODY = {errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED}
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_LATER = _NOBODY | _NO_ROOM


def _done(keep: bool) -> Future[bool]:
    future: Future[bool] = Future()
    future.set_result(keep)
    return future


# What `finish_request` takes: whether the connection is kept.
DONE = {keep: _done(keep) for keep in (False, True)}


class ConnectionQueue:
    """Connections in the order of their timeouts: a deque of gunicorn's with `remove` in O(1).

    A deque compares the connection to be removed with all before it.
    """

    def __init__(self) -> None:
        self._connections: OrderedDict[Any, None] = OrderedDict()

    def append(self, conn: Any) -> None:
        """Add a connection at the end."""
        self._connections[conn] = None

    def remove(self, conn: Any) -> None:
        """Take a connection out; ValueError if it is not there."""
        try:
            del self._connections[conn]
        except KeyError:
            raise ValueError("no such connection") from None

    def popleft(self) -> Any:
        """Take the first connection out."""
        return self._connections.popitem(last=False)[0]

    def __getitem__(self, index: Literal[0]) -> Any:
        return next(iter(self._connections))

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._connections)


class ConnectionWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Accepts connections in batches, evicts idle ones for new ones, closes without blocking."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.keepalived_conns = ConnectionQueue()
        self.pending_conns = ConnectionQueue()
        self._closing = ConnectionQueue()

    def accept(self, listener: socket.socket) -> None:
        """Accept a batch of connections; idle ones make room for them."""
        name = listener.getsockname()
        for _ in range(_ACCEPTED_AT_ONCE):
            if self.nr_conns >= self.worker_connections and not self._make_room():
                return
            try:
                sock, address = listener.accept()
            except OSError as error:
                if error.errno in _NO_ROOM and self._make_room():
                    continue
                if error.errno in _LATER:
                    return
                raise
            self.nr_conns += 1
            self.enqueue_req(TConn(self.cfg, sock, address, name))

    def set_accept_enabled(self, enabled: bool) -> None:
        """Go on accepting while an idle connection can make room for a new one."""
        super().set_accept_enabled(enabled or (self.alive and bool(self.keepalived_conns)))

    def on_client_socket_readable(self, conn: Any, client: socket.socket) -> None:
        """Serve a kept connection again, unless it was evicted since the poller reported it."""
        if client.fileno() >= 0:
            super().on_client_socket_readable(conn, client)

    def send_away(self, conn: Any, answer: bytes, keep: bool, is_read: bool) -> None:
        """Send a short answer at once, then keep or close the connection.

        `is_read`: nothing that the peer sent is left unread.  A peer that does not take the answer
        is closed: whoever is refused shall hold no buffer.
        """
        try:
            whole = conn.sock.send(answer) == len(answer)
        except OSError:  # it hung up, or takes nothing
            whole = False
        if whole and (keep or not is_read):
            self.finish_request(conn, DONE[keep])
        else:
            self.hang_up(conn)

    def hang_up(self, conn: Any) -> None:
        """Close a connection that is in no queue."""
        self.nr_conns -= 1
        conn.close()

    def _make_room(self) -> bool:
        """Evict the connection that has been idle for longest; False if none is idle."""
        if not self.keepalived_conns:
            return False
        conn = self.keepalived_conns.popleft()
        metrics.EVICTIONS.inc()
        self.nr_conns -= 1
        self._close(conn)
        return True

    def finish_request(self, conn: Any, fs: Future[Any]) -> None:
        """Keep a connection, or close it in the background, as soon as the peer has.

        Gunicorn blocks its loop for up to two seconds here.
        """
        if not self.alive or fs.cancelled() or fs.exception() or fs.result():
            super().finish_request(conn, fs)
            return
        self.nr_conns -= 1
        try:
            conn.sock.shutdown(socket.SHUT_WR)
            conn.sock.setblocking(False)
            self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._drain, conn))
        except (OSError, ValueError):  # it hung up
            conn.close()
            return
        # Closing with unread data resets the connection, and the peer loses the answer.
        conn.timeout = time.monotonic() + _LINGER_SECONDS
        self._closing.append(conn)
        if len(self._closing) > self.worker_connections // 4:
            self._close(self._closing.popleft())

    def _drain(self, conn: Any, sock: socket.socket) -> None:
        """Discard what a peer still sends; close once it has closed."""
        if sock.fileno() < 0:  # it was closed since the poller reported it
            return
        try:
            if sock.recv(_DRAIN_BYTES):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._closing.remove(conn)
        self._close(conn)

    def _close(self, conn: Any) -> None:
        self.poller.unregister(conn.sock)
        conn.close()

    def murder_pending(self) -> None:
        """Close connections whose time is over; the loop calls this at least once a second."""
        super().murder_pending()
        while self._closing and self._closing[0].timeout <= time.monotonic():
            self._close(self._closing.popleft())
