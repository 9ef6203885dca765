"""Gunicorn's threaded worker, with connections that cost little when there are many of them."""

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

# So many are taken in before those that are here are looked at again.
_ACCEPTED_AT_ONCE = 512
# So long a peer may take to read the last answer and to close its end.
_LINGER_SECONDS = 2.0
_DRAIN_BYTES = 1 << 16
# Nobody is there, or hung up again.
_NOBODY = {errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED}
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_LATER = _NOBODY | _NO_ROOM


def _done(keep: bool) -> Future[bool]:
    future: Future[bool] = Future()
    future.set_result(keep)
    return future


# What gunicorn is told of a connection: whether it is kept.
DONE = {keep: _done(keep) for keep in (False, True)}


class ConnectionQueue:
    """Connections in the order of their timeouts: what gunicorn does to a deque of them, in O(1).

    A deque compares a connection that it is to remove with all that are before it.  With 10,000
    idle connections that made a host request three times as dear.
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
    """Takes connections in by the dozen, and ends them without waiting for their peers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.keepalived_conns = ConnectionQueue()
        self.pending_conns = ConnectionQueue()
        self._closing = ConnectionQueue()

    def accept(self, listener: socket.socket) -> None:
        """Take in those who wait; the idle make room for them."""
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
        """Go on while an idle connection can make room for a new one."""
        super().set_accept_enabled(enabled or (self.alive and bool(self.keepalived_conns)))

    def on_client_socket_readable(self, conn: Any, client: socket.socket) -> None:
        """Serve a connection again, unless it made room for another since the poller saw it."""
        if client.fileno() >= 0:
            super().on_client_socket_readable(conn, client)

    def send_away(self, conn: Any, answer: bytes, keep: bool, is_read: bool) -> None:
        """Give a short answer and be done; `is_read`: the peer sent nothing after its request."""
        try:
            whole = conn.sock.send(answer) == len(answer)
        except OSError:  # it hung up, or takes nothing
            whole = False
        if whole and (keep or not is_read):
            self.finish_request(conn, DONE[keep])
        else:
            self.hang_up(conn)

    def hang_up(self, conn: Any) -> None:
        """Close a connection that nobody waits at any more."""
        self.nr_conns -= 1
        conn.close()

    def _make_room(self) -> bool:
        """Close the connection that was idle for longest, if any is."""
        if not self.keepalived_conns:
            return False
        conn = self.keepalived_conns.popleft()
        self.nr_conns -= 1
        self._close(conn)
        return True

    def finish_request(self, conn: Any, fs: Future[Any]) -> None:
        """Keep a connection, or close it without waiting for the peer to do the same.

        Gunicorn would wait for up to two seconds, and all its connections with it.
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
        # What is unread at the close would make the kernel take the answer back.
        conn.timeout = time.monotonic() + _LINGER_SECONDS
        self._closing.append(conn)
        if len(self._closing) > self.worker_connections // 4:
            self._close(self._closing.popleft())

    def _drain(self, conn: Any, sock: socket.socket) -> None:
        """Drop what a peer still sends; close when it has closed."""
        if sock.fileno() < 0:  # it made room for another since the poller saw it
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
        """Close what has waited too long; called at least once a second."""
        super().murder_pending()
        while self._closing and self._closing[0].timeout <= time.monotonic():
            self._close(self._closing.popleft())
