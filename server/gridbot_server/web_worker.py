"""Gunicorn's threaded worker with a short way for requests for work.

Its loop itself takes a plain request for work, hands it to the engine, and sends the answer when
the engine has committed: no thread waits meanwhile, and what the two cost each other is paid once
for a batch.  Everything else goes to the threads, as it came: the loop only looks at what arrived.
"""

from __future__ import annotations

import logging
import selectors
import socket
import time
from collections import deque
from concurrent.futures import Future
from functools import cached_property, partial
from typing import Any

import orjson
from gunicorn.workers.gthread import ThreadWorker

from gridbot_server import answers, auth, plain_http
from gridbot_server.api.boinc import DESK
from gridbot_server.api.rpc import UNCHECKED_BYTES
from gridbot_server.app import STALL_SECONDS
from gridbot_server.boinc.desk import Desk
from gridbot_server.errors import GridbotError
from gridbot_server.pace import PacedSocket
from gridbot_server.services import Answered, Services

log = logging.getLogger(__name__)

RPC_PATH = "/rpc"
# So long a peer may take to read the last answer and to close its end.
_LINGER_SECONDS = 2.0
_PEEK_BYTES = plain_http.MAX_HEAD_BYTES + UNCHECKED_BYTES


class WebWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Serves requests for work in its loop, all others in threads."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._answered: deque[tuple[Any, Answered]] = deque()
        self._is_told = False  # the loop, that there is something in it
        self._closing: deque[Any] = deque()  # connections, soonest to be closed first

    def enqueue_req(self, conn: Any) -> None:
        """Serve a connection on which something arrived, or which is new."""
        # A thread may have read the beginning of the next request together with the last one.
        read_on = conn.parser is not None and conn.parser.unreader.buf.getvalue()
        if read_on or not self._serve_here(conn):
            conn.came_at = time.monotonic()
            super().enqueue_req(conn)

    def handle(self, conn: Any) -> Any:
        """Serve a request in a thread, which waits for a slow peer no longer than for others."""
        conn.sock.setblocking(True)
        conn.init()
        conn.parser.unreader.sock = PacedSocket(conn.sock, time.monotonic() - conn.came_at)
        return super().handle(conn)

    def _serve_here(self, conn: Any) -> bool:
        """Take a plain request, or wait for it; return False where a thread is to look."""
        waited = self._waited(conn)
        try:
            data = conn.sock.recv(_PEEK_BYTES, socket.MSG_PEEK)
            plain = plain_http.read(data, self._most_bytes)
            if plain is None or (waited and len(data) < plain.size):
                return False
            if plain.path != RPC_PATH and self._desk is None:
                return False
            if len(data) < plain.size:
                self._await(conn, plain.size)
            else:
                conn.sock.recv(plain.size)
                self._begin(conn, plain, data[plain.start : plain.size])
        except BlockingIOError:
            self._await(conn, 1)
        except OSError:  # it hung up
            return False
        return True

    def _await(self, conn: Any, size: int) -> None:
        """Wait, without a thread, until so many bytes are there or the peer hangs up."""
        if size > 1:
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
            conn.is_awaited = True
        conn.timeout = time.monotonic() + self.cfg.keepalive
        self.pending_conns.append(conn)
        readable = partial(self.on_pending_socket_readable, conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, readable)

    @staticmethod
    def _waited(conn: Any) -> bool:
        """Whether the rest of a request was waited for; from now on any byte counts again."""
        waited = getattr(conn, "is_awaited", False)
        if waited:
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            conn.is_awaited = False
        return waited

    @cached_property
    def _most_bytes(self) -> int:
        """The longest body that is taken here; of a longer one, the sender is checked first."""
        return min(UNCHECKED_BYTES, self.wsgi.config["MAX_CONTENT_LENGTH"] or UNCHECKED_BYTES)

    # ------------------------------------------------------------------ the end of connections

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

    def _drain(self, conn: Any, sock: socket.socket) -> None:
        """Drop what a peer still sends; close when it has closed."""
        try:
            if sock.recv(_PEEK_BYTES):
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

    # ---------------------------------------------------------------------- the short way

    @property
    def _desk(self) -> Desk | None:
        """What serves BOINC clients; Flask makes it at the first request of one."""
        desk: Desk | None = self.wsgi.extensions.get(DESK)
        return desk

    def _begin(self, conn: Any, plain: plain_http.PlainRequest, body: bytes) -> None:
        """Hand a request to the engine, or to the desk that translates for it."""
        if not conn.initialized:
            conn.init()
            conn.sock.setblocking(False)
        services: Services = self.wsgi.extensions["gridbot"]
        try:
            if plain.path != RPC_PATH and (desk := self._desk):
                desk.begin(body, partial(self._tell, conn))
                return
            token = auth.token_hash(plain.authorization)
            services.engine.begin(token, body, partial(self._tell, conn))
        except Exception as error:
            self._refuse(conn, error)

    def _tell(self, conn: Any, item: Answered) -> None:
        """Note, in the engine's thread, that a request is answered; wake the loop once for many."""
        self._answered.append((conn, item))
        if not self._is_told:
            self._is_told = True
            self.method_queue.defer(self._send_answers)

    def _send_answers(self) -> None:
        self._is_told = False
        while self._answered:
            conn, item = self._answered.popleft()
            try:
                reply = item.result()
                body = reply.render()
            except Exception as error:
                self._refuse(conn, error)
            else:
                self._send(conn, 200, body, answers.HARDENING, reply.mimetype)

    def _refuse(self, conn: Any, error: Exception) -> None:
        if not isinstance(error, GridbotError):
            log.error("a request for work failed", exc_info=error)
            error = answers.defect()
        headers = {**answers.error_headers(error.status, error.retry), **answers.HARDENING}
        self._send(conn, error.status, orjson.dumps(answers.error_body(error)), headers)

    def _send(
        self, conn: Any, status: int, body: bytes, headers: Any, mimetype: str = plain_http.JSON
    ) -> None:
        keep = self.alive and len(self.keepalived_conns) < self.max_keepalived
        data = plain_http.answer(status, body, headers, keep, mimetype)
        try:
            sent = conn.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:  # it hung up
            sent, keep = len(data), False
        if sent == len(data):
            self.finish_request(conn, _DONE[keep])
        else:
            self._send_slowly(conn, data[sent:], keep)

    def _send_slowly(self, conn: Any, rest: bytes, keep: bool) -> None:
        """Let a thread send what the peer's window had no room for."""

        def send() -> bool:
            conn.sock.settimeout(STALL_SECONDS)
            conn.sock.sendall(rest)
            return keep

        self.tpool.submit(send).add_done_callback(
            lambda done: self.method_queue.defer(self.finish_request, conn, done)
        )


def _done(keep: bool) -> Future[bool]:
    future: Future[bool] = Future()
    future.set_result(keep)
    return future


# What gunicorn is told of a connection: whether it is kept.
_DONE = {keep: _done(keep) for keep in (False, True)}
