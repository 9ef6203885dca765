"""Gunicorn's threaded worker with a short way for requests for work.

Its loop itself takes a plain request for work, hands it to the engine, and sends the answer when
the engine has committed: no thread waits meanwhile, and what the two cost each other is paid once
for a batch.  Everything else goes to the threads, as it came: the loop only looks at what arrived.
"""

from __future__ import annotations

import errno
import logging
import selectors
import socket
import time
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any

import orjson

from gridbot_server.api.boinc.session import SESSION
from gridbot_server.api.rpc import UNCHECKED_BYTES, door_of
from gridbot_server.boinc.protocol import peek
from gridbot_server.boinc.session.session import PendingRequest, SchedulerSession
from gridbot_server.errors import ServerError
from gridbot_server.http import answers, auth
from gridbot_server.http.services import Answered, Services
from gridbot_server.overload.slow_senders import PATIENCE_SECONDS, PacedSocket
from gridbot_server.web import fast_http, refusals
from gridbot_server.web.app import STALL_SECONDS
from gridbot_server.web.connections import DONE, ConnectionWorker
from gridbot_server.web.fast_http import PlainRequest
from gridbot_server.web.gate import Door, brings_reports, native_client

log = logging.getLogger(__name__)

RPC_PATH = "/rpc"
_HEALTH = b"GET /health HTTP/1."
# Requests that wait for a thread, or have one; those beyond would only wait longer.
_MOST_PER_THREAD = 8
_PEEK_BYTES = fast_http.MAX_HEAD_BYTES + UNCHECKED_BYTES


class WebWorker(ConnectionWorker):
    """Serves requests for work in its loop, all others in threads."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._answered: deque[tuple[Any, Answered]] = deque()
        self._is_told = False  # the loop, that there is something in it
        # Requests that wait for a thread, or have one.
        self._in_threads: Counter[ThreadPoolExecutor] = Counter()

    def init_process(self) -> None:
        """Make what lives as long as the process; gunicorn then serves, and returns at the end."""
        # Whoever asks how the server is shall not wait behind those for whom it works.
        self._monitors = ThreadPoolExecutor(1, "health")
        super().init_process()

    def enqueue_req(self, conn: Any) -> None:
        """Serve a connection on which something arrived, or which is new."""
        # A thread may have read the beginning of the next request together with the last one.
        if conn.parser is not None and conn.parser.unreader.buf.getvalue():
            self._hand_over(conn, self.tpool)
            return
        waited = self._waited(conn)
        try:
            self._sort(conn, conn.sock.recv(_PEEK_BYTES, socket.MSG_PEEK), waited)
        except BlockingIOError:
            self._await(conn, 1)
        except OSError:  # the peer did
            self.hang_up(conn)

    def _sort(self, conn: Any, data: bytes, waited: bool) -> None:
        """Bring a request to where it is served; `data` is what came of it, still unread."""
        if not data:
            self.hang_up(conn)
        elif self._serve_here(conn, data, waited):
            pass
        elif b"\r\n\r\n" not in data and len(data) < fast_http.MAX_HEAD_BYTES:
            self._await_head(conn, len(data), waited)
        else:
            self._find_thread(conn, data)

    def _await_head(self, conn: Any, there: int, waited: bool) -> None:
        """Wait for more of a head, which no thread shall do, unless it comes too slowly."""
        now = time.monotonic()
        if not waited:
            conn.begun_at = now
        elif there == conn.begun_bytes or now - conn.begun_at > PATIENCE_SECONDS:
            self.hang_up(conn)  # there is no more, or it takes too long
            return
        conn.begun_bytes = there
        self._await(conn, there + 1)

    def _find_thread(self, conn: Any, data: bytes) -> None:
        """Hand a request to those who serve its kind, unless too many wait for them."""
        is_health = data.startswith(_HEALTH) and data.endswith(b"\r\n\r\n")
        pool = self._monitors if is_health else self.tpool
        if self._in_threads[pool] < _MOST_PER_THREAD * self.cfg.threads:
            self._hand_over(conn, pool)
            return
        conn.sock.recv(len(data))
        answer = refusals.to_native(self._door.overloaded(), False, int(time.time()))
        self.send_away(conn, answer, keep=False, is_read=False)

    def _hand_over(self, conn: Any, pool: ThreadPoolExecutor) -> None:
        """Let a thread serve a request."""
        conn.came_at = time.monotonic()
        self._in_threads[pool] += 1
        pool.submit(self.handle, conn).add_done_callback(
            lambda done: self.method_queue.defer(self._take_back, conn, pool, done)
        )

    def _take_back(self, conn: Any, pool: ThreadPoolExecutor, done: Future[Any]) -> None:
        self._in_threads[pool] -= 1
        self.finish_request(conn, done)

    def handle(self, conn: Any) -> Any:
        """Serve a request in a thread, which waits for a slow peer no longer than for others."""
        conn.sock.setblocking(True)
        conn.init()
        conn.parser.unreader.sock = PacedSocket(conn.sock, time.monotonic() - conn.came_at)
        return super().handle(conn)

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Answer; that a peer takes the answer too slowly is nothing to log."""
        try:
            return super().handle_request(req, conn)
        except TimeoutError:
            raise ConnectionResetError(errno.ECONNRESET, "it takes its answer slowly") from None

    def _serve_here(self, conn: Any, data: bytes, waited: bool) -> bool:
        """Take a plain request, or wait for it; return False where a thread is to look."""
        plain = fast_http.read(data, self._most_bytes)
        if plain is None or (waited and len(data) < plain.size):
            return False
        if plain.path != RPC_PATH and self._boinc is None:
            return False
        if len(data) < plain.size:
            self._await(conn, plain.size)
        else:
            conn.sock.recv(plain.size)
            self._let_in(conn, plain, data)
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

    @property
    def _keeps(self) -> bool:
        """Whether connections are kept after an answer."""
        return bool(self.alive and len(self.keepalived_conns) < self.max_keepalived)

    @cached_property
    def _most_bytes(self) -> int:
        """The longest body that is taken here; of a longer one, the sender is checked first."""
        return min(UNCHECKED_BYTES, self.wsgi.config["MAX_CONTENT_LENGTH"] or UNCHECKED_BYTES)

    # ---------------------------------------------------------------------- the short way

    @property
    def _boinc(self) -> SchedulerSession | None:
        """What serves BOINC clients; Flask makes it at the first request of one."""
        session: SchedulerSession | None = self.wsgi.extensions.get(SESSION)
        return session

    @cached_property
    def _door(self) -> Door:
        return door_of(self.wsgi)

    def _let_in(self, conn: Any, plain: PlainRequest, data: bytes) -> None:
        """Hand a request on, or tell its client when to come again."""
        body = data[plain.start : plain.size]
        if session := self._boinc if plain.path != RPC_PATH else None:
            refusal = self._door.refusal(peek.client_of(body), peek.brings_results(body))
        else:
            refusal = self._door.refusal(native_client(plain.authorization), brings_reports(body))
        if refusal is None:
            self._begin(conn, plain, body)
            return
        # A connection that was of use, as a proxy's, may be again; others would only take room.
        keep, second = conn.initialized and self._keeps, int(time.time())
        if session:
            text = session.refusal(refusal.detail, refusal.seconds)
            answer = refusals.in_body(text, PendingRequest.mimetype, keep, second)
        else:
            answer = refusals.to_native(refusal, keep, second)
        self.send_away(conn, answer, keep, is_read=len(data) == plain.size)

    def _begin(self, conn: Any, plain: PlainRequest, body: bytes) -> None:
        """Hand a request to the engine, or to the session that translates for it."""
        if not conn.initialized:
            conn.init()
            conn.sock.setblocking(False)
        self._door.admission.begin()
        services: Services = self.wsgi.extensions["gridbot"]
        try:
            if plain.path != RPC_PATH and (session := self._boinc):
                session.begin(body, partial(self._tell, conn))
                return
            token = auth.token_hash(plain.authorization)
            services.engine.begin(token, body, partial(self._tell, conn))
        except Exception as error:
            self._door.admission.end(time.monotonic())
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
            self._door.admission.end(time.monotonic())
            try:
                reply = item.result()
                body = reply.render()
            except Exception as error:
                self._refuse(conn, error)
            else:
                self._send(conn, 200, body, answers.HARDENING, reply.mimetype)

    def _refuse(self, conn: Any, error: Exception) -> None:
        if not isinstance(error, ServerError):
            log.error("a request for work failed", exc_info=error)
            error = answers.defect()
        headers = {**answers.error_headers(error.status, error.retry), **answers.HARDENING}
        self._send(conn, error.status, orjson.dumps(answers.error_body(error)), headers)

    def _send(
        self, conn: Any, status: int, body: bytes, headers: Any, mimetype: str = fast_http.JSON
    ) -> None:
        keep = self._keeps
        data = fast_http.answer(status, body, headers, keep, mimetype)
        try:
            sent = conn.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:  # it hung up
            sent, keep = len(data), False
        if sent == len(data):
            self.finish_request(conn, DONE[keep])
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
