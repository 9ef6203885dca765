"""Gunicorn's threaded worker with a fast path for requests for work, and for polls of open pages.

The event loop itself reads a plain request for work, passes it to the engine, and sends the answer
after the commit: no thread waits meanwhile.  It answers the poll of an open page if what that shows
is known.  Every other request goes to the threads unread.
"""

# Theory of operation
# ===================
#
# A web process has one event loop (the main thread, `ThreadWorker.run`), `web_threads` threads
# that run Flask views (`tpool`), as many for requests whose bodies take time to arrive (`_senders`,
# started when needed), one thread for health checks (`_monitors`), the engine's writer thread, and
# one for BOINC's scheduler session once a BOINC client has come.
#
# The rule that everything rests on: a connection has one owner at a time, and only its owner
# touches its socket.  The loop gives a connection away by submitting it to a pool or to the engine.
# It comes back by `method_queue.defer`, the loop's wake-up pipe, and by nothing else.  While it is
# away it is not registered with the poller, so a pipelined request waits in the kernel, or in the
# parser's buffer if a thread has read ahead.  The loop never blocks: every socket that it touches
# is non-blocking, and the engine and the session only queue.
#
# How a request is told apart: the loop peeks (MSG_PEEK) at what has arrived and consumes it only
# if it is a whole request in the plain form of `fast_http`, for work, or the poll of a page whose
# content is in memory (`console/shared.py`).  Otherwise all bytes stay in the kernel
# for gunicorn's parser in a thread.  For the rest of a head, or of a body that fits into the
# socket's buffer, the loop waits without a thread: SO_RCVLOWAT makes the poller silent until enough
# bytes are there.  Longer bodies are read by `_senders`, so that whoever sends one slowly keeps
# nobody from a page.
#
#   state         kept in               owner   left when                       bound
#   ------------  --------------------  ------  ------------------------------  ------------------
#   not accepted  kernel's backlog      kernel  the loop accepts, 512 per turn  backlog
#   needs bytes   pending_conns         loop    they arrive                     30 s; a head 20 s in
#                                                                               all, and each look
#                                                                               must find more of it
#   in engine     engine, session       nobody  the batch is committed          admission control:
#                                                                               512, 1,024 requests
#   parked        _parking              loop    work appears, its time is over, 50 s; a quarter of
#                                               or the peer hangs up            all connections; one
#                                                                               of each client
#   long poll     _long_polls           loop    a BOT has news, its     50 s; an eighth of all
#                                               time is over, or the    connections, 64 of a key
#                                               peer hangs up
#   in thread     pool's queue, thread  thread  the answer is sent              8 per thread; slow
#                                                                               peers: deadlines
#   slow answer   tpool                 thread  the kernel has taken it         60 s
#   idle          keepalived_conns      loop    the next request arrives        30 s; evicted first
#   closing       _closing              loop    the peer closes                 2 s; a quarter of
#                                                                               all connections
#
# Parked.  A request that found no work, and says that it may wait, stays in the loop without an
# answer (`parking.py`).
#
# From `accept` to closing a connection is counted in `nr_conns`, exactly once, and that is at most
# `worker_connections`.  A thread that reads from a slow peer is freed by PacedSocket
# (`overload/slow_senders.py`), one that writes to it by `http/slow_readers.py`.  How many threads
# transfers may hold is bounded by `overload/transfer_slots.py`.
#
# Overload.  Back-pressure is never exerted by waiting.  What cannot be served in time is refused
# at once (load shedding): requests for work by the gate, before they are decoded; other requests
# when `_MOST_PER_THREAD` of them wait per thread.  A refused connection is closed unless it has
# carried a request before, as one of a proxy's has.  New connections evict idle ones; when none
# is idle, they stay in the kernel's backlog.  Health checks have a thread and a queue of their own.
#
# Stop (SIGTERM).  `alive` becomes False, and the loop accepts no more.  Answers say
# `Connection: close`; idle connections get 2 s for a request that is on its way, all others
# `graceful_timeout` (8 s).  Then `worker_exit` (`gunicorn_conf.py`) closes the services: the engine
# serves what it has queued and stops.
#
# Kill.  The kernel closes all sockets.  Clients repeat their requests with the same key, and get
# the leases of the transaction if it was committed.  The feeder frees what the dead process had
# taken out of the buffer once its liveness lock is gone.  The arbiter starts another worker, also
# for one whose loop has not turned for `timeout` (60 s).

from __future__ import annotations

import errno
import logging
import selectors
import socket
import threading
import time
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from http import HTTPStatus
from typing import Any

import orjson

from gridbot_server import metrics
from gridbot_server.api.boinc.session import SESSION
from gridbot_server.api.rpc import UNCHECKED_BYTES, gate_of
from gridbot_server.boinc.protocol import peek
from gridbot_server.boinc.session.session import PendingRequest, SchedulerSession
from gridbot_server.console.shared import CONTENT_TYPE, SharedContents
from gridbot_server.dispatch.engine import Queued
from gridbot_server.errors import ServerError
from gridbot_server.http import answers, auth
from gridbot_server.http.long_poll import NoNews, waiting_allowed
from gridbot_server.http.services import Answered, Services
from gridbot_server.overload.gate import Gate, brings_reports, native_client
from gridbot_server.overload.slow_senders import PATIENCE_SECONDS, PacedSocket
from gridbot_server.web import fast_http, refusals
from gridbot_server.web.app import STALL_SECONDS
from gridbot_server.web.connections import DONE, ConnectionWorker
from gridbot_server.web.fast_http import PlainRequest
from gridbot_server.web.long_polls import LongPoll, LongPolls, listen
from gridbot_server.web.parking import Parking

log = logging.getLogger(__name__)

RPC_PATH = "/rpc"
_HEALTH = b"GET /health HTTP/1."
_TLS_HANDSHAKE = 0x16  # the first byte of a TLS connection (RFC 8446, 5.1); no method begins so
# Requests per thread, waiting or running; a longer queue would only add delay.
_MOST_PER_THREAD = 8
_PEEK_BYTES = fast_http.MAX_HEAD_BYTES + UNCHECKED_BYTES


class WebWorker(ConnectionWorker):
    """Serves plain requests for work in the event loop, all others in threads."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._answered: deque[tuple[Any, Answered]] = deque()
        self._is_woken = False  # the loop, to send what is in it
        # Both touch the application only once it has let a request wait: it need not be ours.
        self._parking = Parking(self)
        self._long_polls = LongPolls(self, self._listen_for_news)
        self._tally = metrics.WorkTally()
        # Requests of each pool, waiting or running.
        self._in_threads: Counter[ThreadPoolExecutor] = Counter()

    def init_process(self) -> None:
        """Make what lives as long as the process, then serve until its end."""
        # Health checks do not queue behind other requests.
        self._monitors = ThreadPoolExecutor(1, "health")
        self._senders = ThreadPoolExecutor(self.cfg.threads, "senders")
        super().init_process()

    def enqueue_req(self, conn: Any) -> None:
        """Serve a connection that is new, or on which something arrived."""
        # A thread may have read ahead into the next request.
        if conn.parser is not None and conn.parser.unreader.buf.getvalue():
            self._hand_over(conn, self._senders)
            return
        waited = self._waited(conn)
        try:
            self._sort(conn, conn.sock.recv(_PEEK_BYTES, socket.MSG_PEEK), waited)
        except BlockingIOError:
            self._await(conn, 1)
        except OSError:  # the peer hung up
            self.hang_up(conn)

    def _sort(self, conn: Any, data: bytes, waited: bool) -> None:
        """Route a request; `data` is what has arrived of it, still in the kernel."""
        if not data:
            self.hang_up(conn)
        elif self._serve_here(conn, data, waited) or self._answer_poll(conn, data):
            pass
        elif data[0] == _TLS_HANDSHAKE:
            conn.sock.recv(len(data))
            self.send_away(conn, refusals.to_tls(), keep=False, is_read=False)
        elif b"\r\n\r\n" not in data and len(data) < fast_http.MAX_HEAD_BYTES:
            self._await_head(conn, len(data), waited)
        else:
            self._find_thread(conn, data)

    def _await_head(self, conn: Any, there: int, waited: bool) -> None:
        """Wait for the rest of a head, without a thread; close a peer that is too slow."""
        now = time.monotonic()
        if not waited:
            conn.begun_at = now
        elif there == conn.begun_bytes or now - conn.begun_at > PATIENCE_SECONDS:
            self.hang_up(conn)  # the peer has closed its end, or its time is over
            return
        conn.begun_bytes = there
        self._await(conn, there + 1)

    def _find_thread(self, conn: Any, data: bytes) -> None:
        """Pass a request to the pool that serves its kind; refuse it when the queue is full."""
        size = fast_http.size_of(data)
        if size and len(data) < size <= _PEEK_BYTES and size != getattr(conn, "awaited", 0):
            conn.awaited = size  # only once: a peer that has hung up sends no more
            self._await(conn, size)
            return
        conn.awaited = 0
        pool = self.tpool if size and size <= len(data) else self._senders
        if data.startswith(_HEALTH) and data.endswith(b"\r\n\r\n"):
            pool = self._monitors
        if self._in_threads[pool] < _MOST_PER_THREAD * self.cfg.threads:
            self._hand_over(conn, pool)
            return
        conn.sock.recv(len(data))
        answer = refusals.to_native(self.gate.overloaded(), False, int(time.time()))
        self.send_away(conn, answer, keep=False, is_read=False)

    def _hand_over(self, conn: Any, pool: ThreadPoolExecutor) -> None:
        """Give a connection to a thread."""
        conn.came_at = time.monotonic()
        self._in_threads[pool] += 1
        pool.submit(self.handle, conn).add_done_callback(
            lambda done: self.method_queue.defer(self._take_back, conn, pool, done)
        )

    def _take_back(self, conn: Any, pool: ThreadPoolExecutor, done: Future[Any]) -> None:
        self._in_threads[pool] -= 1
        waiting, conn.waiting = getattr(conn, "waiting", None), None
        poll, conn.long_poll = getattr(conn, "long_poll", None), None
        if not (waiting and done.result()):
            self.finish_request(conn, done)
        elif poll:
            self._long_polls.keep_on(conn, poll, began=waiting[-1])
        else:
            self._long_polls.keep(conn, *waiting)

    def run_again(self, conn: Any, poll: LongPoll) -> None:
        """Let a thread run the view of a request that waited; it may wait on until its time."""
        conn.long_poll = poll
        self._in_threads[self.tpool] += 1
        self.tpool.submit(self._handle_again, conn, poll.request).add_done_callback(
            lambda done: self.method_queue.defer(self._take_back, conn, self.tpool, done)
        )

    def _handle_again(self, conn: Any, request: Any) -> bool:
        """In a thread; as gunicorn's `handle` does with a request that it has just parsed."""
        conn.sock.setblocking(True)
        try:
            return bool(self._keepalive_after(conn, self.handle_request(request, conn)))
        except (StopIteration, OSError):
            pass
        except Exception as error:
            self.handle_error(request, conn.sock, conn.client, error)
        return False

    def handle(self, conn: Any) -> Any:
        """Serve a request in a thread, under the slow-sender deadline."""
        conn.sock.setblocking(True)
        conn.init()
        conn.parser.unreader.sock = PacedSocket(conn.sock, time.monotonic() - conn.came_at)
        return super().handle(conn)

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Answer; a peer that reads the answer too slowly is not worth a line in the log."""
        now = time.monotonic()
        try:
            poll = getattr(conn, "long_poll", None)
            with waiting_allowed(poll is None or now < poll.until):
                return super().handle_request(req, conn)
        except NoNews as wish:
            conn.waiting = req, wish, now
            return True
        except TimeoutError:
            raise ConnectionResetError(errno.ECONNRESET, "it takes its answer slowly") from None

    def _serve_here(self, conn: Any, data: bytes, waited: bool) -> bool:
        """Take a plain request, or wait for the rest of it; False if a thread must serve it."""
        plain = fast_http.read(data, self._most_bytes)
        if plain is None or (waited and len(data) < plain.size):
            return False
        if plain.path != RPC_PATH and self._boinc is None:
            return False
        if len(data) < plain.size:
            self._await(conn, plain.size)
        else:
            conn.sock.recv(plain.size)
            self._admit(conn, plain, data)
        return True

    def _answer_poll(self, conn: Any, data: bytes) -> bool:
        """Answer the poll of an open page from memory; False if a thread must."""
        poll = fast_http.read_poll(data)
        if poll is None:
            return False
        pages: SharedContents = self.wsgi.extensions["gridbot_console"]
        found = pages.poll(poll.path, poll.cookie_header, poll.etag, may_wait=False)
        if found is None:
            return False
        conn.sock.recv(poll.size)
        _make_ready(conn)
        keep = self._keeps
        if found.html is None:
            answer = fast_http.unchanged(found.headers, keep)
        else:
            answer = fast_http.answer(HTTPStatus.OK, found.html, found.headers, keep, CONTENT_TYPE)
        self._send(conn, answer, keep)
        return True

    def _await(self, conn: Any, size: int) -> None:
        """Wait, without a thread, until `size` bytes are there or the peer hangs up."""
        if size > 1:
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
            conn.is_awaited = True
        conn.timeout = time.monotonic() + self.cfg.keepalive
        self.pending_conns.append(conn)
        readable = partial(self.on_pending_socket_readable, conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, readable)

    @staticmethod
    def _waited(conn: Any) -> bool:
        """Whether the rest of a request was waited for; resets SO_RCVLOWAT."""
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
        """Longest body on the fast path; the sender of a longer one is authenticated first."""
        return min(UNCHECKED_BYTES, self.wsgi.config["MAX_CONTENT_LENGTH"] or UNCHECKED_BYTES)

    # ---------------------------------------------------------------------- the fast path

    @property
    def _boinc(self) -> SchedulerSession | None:
        """The session of BOINC clients; Flask makes it at the first request of one."""
        session: SchedulerSession | None = self.wsgi.extensions.get(SESSION)
        return session

    @cached_property
    def gate(self) -> Gate:
        """Which requests for work are admitted."""
        return gate_of(self.wsgi)

    @property
    def services(self) -> Services:
        """What the application was made with."""
        found: Services = self.wsgi.extensions["gridbot"]
        return found

    def _listen_for_news(self) -> None:
        arguments = (
            self.services.settings.dsn_or_embedded,
            lambda: self.alive,
            lambda: self.method_queue.defer(self._long_polls.listening),
            lambda bot, ended: self.method_queue.defer(self._long_polls.tell, bot, ended),
        )
        threading.Thread(target=listen, args=arguments, name="news", daemon=True).start()

    def _admit(self, conn: Any, plain: PlainRequest, data: bytes) -> None:
        """Pass a request through the gate, or refuse it."""
        body = data[plain.start : plain.size]
        self._tally.receive(len(body))
        if session := self._boinc if plain.path != RPC_PATH else None:
            refusal = self.gate.refusal(peek.client_of(body), peek.brings_results(body))
        else:
            refusal = self.gate.refusal(native_client(plain.authorization), brings_reports(body))
        if refusal is None:
            self._begin(conn, plain, body)
            return
        self._tally.answer(503)
        # One that has carried a request before, as a proxy's, is useful again; others take room.
        keep, second = conn.initialized and self._keeps, int(time.time())
        if session:
            text = session.refusal(refusal.detail, refusal.seconds)
            answer = refusals.in_body(text, PendingRequest.mimetype, keep, second)
        else:
            answer = refusals.to_native(refusal, keep, second)
        self.send_away(conn, answer, keep, is_read=len(data) == plain.size)

    def _begin(self, conn: Any, plain: PlainRequest, body: bytes) -> None:
        """Queue a request in the engine, or in the session that translates for it."""
        _make_ready(conn)
        self.gate.admission.begin()
        try:
            if plain.path != RPC_PATH and (session := self._boinc):
                session.begin(body, partial(self._tell, conn))
                return
            token = auth.token_hash(plain.authorization)
            self.services.engine.begin(token, body, partial(self._tell, conn))
        except Exception as error:
            self.gate.admission.end(time.monotonic())
            self.refuse(conn, error)

    def _tell(self, conn: Any, item: Answered) -> None:
        """Queue an answer, in the engine's thread; the loop is woken once for a whole batch."""
        self._answered.append((conn, item))
        if not self._is_woken:
            self._is_woken = True
            self.method_queue.defer(self._send_answers)

    def _send_answers(self) -> None:
        self._is_woken = False
        while self._answered:
            conn, item = self._answered.popleft()
            self.gate.admission.end(time.monotonic())
            if not (isinstance(item, Queued) and self._parking.keeps(conn, item)):
                self.answer(conn, item)

    def answer(self, conn: Any, item: Answered) -> None:
        """Send what the engine or the session has answered."""
        try:
            reply = item.result()
            body = reply.render()
        except Exception as error:
            self.refuse(conn, error)
        else:
            self._send_tallied(conn, 200, body, answers.HARDENING, reply.mimetype)

    # ------------------------------------------------------------------------ parked requests

    def _make_room(self) -> bool:
        """Evict an idle connection; if there is none, let a parked request go."""
        if super()._make_room():
            return True
        return self._parking.make_room() and (
            super()._make_room() or self.nr_conns < self.worker_connections
        )

    def set_accept_enabled(self, enabled: bool) -> None:
        """Go on accepting while a parked request can make room for a new connection."""
        super().set_accept_enabled(enabled or (self.alive and not self._parking.is_empty))

    def murder_pending(self) -> None:
        """End what has waited too long, and let the metrics know; at least once a second."""
        super().murder_pending()
        self._parking.turn()
        self._long_polls.turn()
        self._tally.tell(time.monotonic())

    # ---------------------------------------------------------------------------- answers

    def refuse(self, conn: Any, error: Exception) -> None:
        """Answer with an error."""
        if not isinstance(error, ServerError):
            log.error("a request for work failed", exc_info=error)
            error = answers.defect()
        headers = {**answers.error_headers(error.status, error.retry), **answers.HARDENING}
        self._send_tallied(conn, error.status, orjson.dumps(answers.error_body(error)), headers)

    def _send_tallied(
        self, conn: Any, status: int, body: bytes, headers: Any, mimetype: str = fast_http.JSON
    ) -> None:
        """Send the answer to a request for work."""
        keep = self._keeps
        self._tally.answer(status, len(body))
        self._send(conn, fast_http.answer(status, body, headers, keep, mimetype), keep)

    def _send(self, conn: Any, data: bytes, keep: bool) -> None:
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
        """Let a thread send what the socket's buffer had no room for."""

        def send() -> bool:
            conn.sock.settimeout(STALL_SECONDS)
            conn.sock.sendall(rest)
            return keep

        self.tpool.submit(send).add_done_callback(
            lambda done: self.method_queue.defer(self.finish_request, conn, done)
        )


def _make_ready(conn: Any) -> None:
    """Make a connection one that the loop answers on."""
    if not conn.initialized:
        conn.init()
        conn.sock.setblocking(False)
