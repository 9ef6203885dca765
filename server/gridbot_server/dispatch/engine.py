"""The host request's engine: one per web process, with one writer thread and one connection.

Theory of operation
===================

One writer.  Any number of threads queue requests (`begin`, `handle`, `ask`); one thread serves
them, on one connection.  So requests of one process never wait for each other's row locks, `choose`
sees what the request before it took, and the dispatcher's caches need no lock of their own.

Group commit.  The writer takes all requests that queued while its last transaction was committed,
at most BATCH_REQUESTS, and serves them in one transaction.  Nobody waits for a batch to fill: on
an idle server a batch is one request, and under load it grows by itself, so that the price of a
commit (one fsync) and of each statement is shared by many.  One client has one request in a batch;
a second one, such as a retry, is put off to the next batch, which sees what the first one did.

Order.  Requests that bring reports go ahead of those that only ask, by REPORTS_AHEAD places: work
that was done must not wait behind a crowd that wants some.  The advance is bounded, so nobody
starves.  Beyond QUEUE_REQUESTS a request is refused at once (back-pressure).

When replies leave.  Only after the commit.  A client that has its acknowledgement may delete its
outputs; a client that has an assignment has a lease.  The slots that the batch took out of the
scheduling buffer are freed after the commit, or restored after a rollback, before any answer.

What a crash loses, by the place of the crash:

    before the commit   nothing was acknowledged: clients ask again, PostgreSQL rolls back, the
                        feeder finds the slots that this process had taken (`buffer/memory.py`)
    after the commit    the replies: clients ask again with the same key, are acknowledged (their
                        reports find no lease any more), and get their leases again (`resend`)

A commit whose answer was lost looks like a rollback here: the slots are restored.  A request
that takes one whose replica was leased after all is refused by the row of its lease.

Faults.  A lost connection is opened again, and the batch is served once more; then its requests are
refused with DatabaseAway.  If a batch fails otherwise, each of its requests is served alone, so
that the one to blame fails alone.  The writer thread itself never ends: every request would hang.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from gridbot_client.protocol.messages import ProtocolError, WorkRequest
from gridbot_server import metrics
from gridbot_server.buffer import liveness, wake_up
from gridbot_server.buffer.buffer import SchedulingBuffer
from gridbot_server.buffer.layout import BufferDamaged, BufferMissing
from gridbot_server.dispatch.batch import SQL
from gridbot_server.dispatch.candidates import Candidate
from gridbot_server.dispatch.dispatcher import Dispatcher
from gridbot_server.dispatch.replies import ReplyParts
from gridbot_server.dispatch.transaction import transact
from gridbot_server.dispatch.wire import read_request
from gridbot_server.errors import (
    DatabaseAway,
    InternalError,
    RequestError,
    ServerBusy,
    ServerError,
)
from gridbot_server.metrics.traces import TracedReplicas, Tracing
from gridbot_server.storage import db
from gridbot_server.storage.rows import fetch_value

log = logging.getLogger(__name__)

BATCH_REQUESTS = 256
# How far a request that brings reports goes ahead of those that only ask: past all that the gate
# lets wait, and yet none of them waits for ever.
REPORTS_AHEAD = 2 * BATCH_REQUESTS
QUEUE_REQUESTS = 2048  # beyond this a request is refused at once, with a time to come back
ANSWER_SECONDS = 60.0


@dataclass(slots=True)
class Queued:
    """One request on its way through the engine."""

    token_hash: bytes
    request: WorkRequest
    tell: Callable[[Queued], None]  # called by the writer thread, for each time it is queued
    outcome: ReplyParts | ServerError | None = None
    was_parked: bool = False  # it was served before, and found no work
    came_at: float = field(default_factory=time.monotonic)  # when it was queued last
    may_find_more: bool = False  # the buffer still held replicas when it was served

    @property
    def may_wait(self) -> bool:
        """Whether it asked for work, and its reply has neither that nor anything else."""
        return isinstance(self.outcome, ReplyParts) and self.outcome.may_wait

    def answer(self, outcome: ReplyParts | ServerError) -> None:
        """Answer with a reply or an error."""
        self.outcome = outcome
        self.tell(self)

    def result(self) -> ReplyParts:
        """Return the reply of an answered request, or raise its error."""
        if isinstance(self.outcome, ServerError):
            raise self.outcome
        assert self.outcome is not None, "what is answered has a reply or an error"
        return self.outcome


class Engine:
    """Create it after fork.  `handle` may be called by any number of threads."""

    def __init__(self, dsn: str, buffer_path: Path, tracing: Tracing | None = None) -> None:
        self._dsn, self._buffer_path = dsn, buffer_path
        self.generation = random.SystemRandom().randrange(1, 2**31)
        self._alive = liveness.hold(buffer_path, self.generation)
        # By place and number of arrival; None, at the end, stops the writer.
        self._queue = queue.PriorityQueue[tuple[float, int, Queued | None]](QUEUE_REQUESTS)
        self._arrivals = itertools.count(1)
        self._traced = None if tracing is None else TracedReplicas(tracing)
        self._dispatcher = Dispatcher(self.generation, traced=self._traced)
        self._conn: db.PostgresConnection | None = None
        self._epoch = 0
        self._buffer: SchedulingBuffer | None = None
        self._writer = threading.Thread(target=self._run, name="writer", daemon=True)
        self._writer.start()

    def close(self) -> None:
        """Finish what is queued, then stop."""
        self._queue.put((math.inf, 0, None))
        self._writer.join()
        if self._conn is not None:
            self._conn.close()
        os.close(self._alive)
        liveness.path_of(self._buffer_path, self.generation).unlink(missing_ok=True)

    def handle(self, token_hash: bytes, body: bytes) -> bytes:
        """Answer one host request; raise an error of `errors` when it cannot be served."""
        return self.ask(token_hash, _read(body)).render()

    def ask(self, token_hash: bytes, request: WorkRequest) -> ReplyParts:
        """Answer a request that was read already; its reply is not rendered yet."""
        answered = threading.Event()
        item = Queued(token_hash, request, lambda _: answered.set())
        self._queue_up(item)
        if not answered.wait(ANSWER_SECONDS):
            raise ServerBusy(f"no answer within {ANSWER_SECONDS:.0f} s")
        return item.result()

    def begin(self, token_hash: bytes, body: bytes, tell: Callable[[Queued], None]) -> None:
        """Queue a host request; the writer thread will `tell` the item with its answer.

        Raises an error of `errors` when it cannot be queued.
        """
        self.take(token_hash, _read(body), tell)

    def take(self, token_hash: bytes, request: WorkRequest, tell: Callable[[Queued], None]) -> None:
        """Queue a request that was read already, as `begin` does."""
        self._queue_up(Queued(token_hash, request, tell))

    @property
    def candidates(self) -> Collection[Candidate]:
        """The BOTs in the buffer when a request for work was served last.

        The writer thread may lessen what they have at hand meanwhile.
        """
        return self._dispatcher.candidates.values()

    def ask_again(self, item: Queued) -> None:
        """Queue a request that found no work once more, as if it came now."""
        item.outcome, item.was_parked, item.came_at = None, True, time.monotonic()
        self._queue_up(item)

    def _queue_up(self, item: Queued) -> None:
        number = next(self._arrivals)
        place = number - REPORTS_AHEAD if item.request.reports else number
        try:
            self._queue.put_nowait((place, number, item))
        except queue.Full:
            raise ServerBusy(f"{QUEUE_REQUESTS} requests are waiting already") from None

    # ------------------------------------------------------------------------ writer thread

    def _run(self) -> None:
        postponed: list[Queued] = []
        stopping = False
        while not stopping or postponed:
            items, postponed, stop = self._collect(postponed)
            stopping = stopping or stop
            if items and not self._has_served(items) and len(items) > 1:
                # One of them is to blame; the others shall not pay for it.
                for item in items:
                    self._has_served([item])

    def _has_served(self, items: list[Queued]) -> bool:
        """Serve a batch, or a single request, which is answered whatever happens."""
        try:
            self._serve(items)
        except Exception:  # the writer must never die: every request would hang
            log.exception("a batch of %d host requests failed", len(items))
            if len(items) == 1:
                _observe(items)
                items[0].answer(InternalError("the server could not serve this request"))
            return False
        return True

    def _collect(self, postponed: list[Queued]) -> tuple[list[Queued], list[Queued], bool]:
        """Return a batch of requests of different clients, those put off, and whether to stop."""
        waiting: list[Queued | None] = list(postponed)
        if not waiting:
            waiting.append(self._queue.get()[2])
        while len(waiting) < BATCH_REQUESTS and not self._queue.empty():
            waiting.append(self._queue.get()[2])
        chosen: dict[bytes, Queued] = {}
        later = []
        for item in waiting:
            if item is not None and chosen.setdefault(item.token_hash, item) is not item:
                later.append(item)
        return list(chosen.values()), later, None in waiting

    def _serve(self, items: list[Queued]) -> None:
        """Serve a batch; a lost connection is opened again, once, before giving up."""
        for attempt in (1, 2):
            try:
                self._transact(items)
                return
            except (psycopg.OperationalError, BufferDamaged) as error:
                log.warning("host requests, attempt %d: %s", attempt, str(error).strip())
        _observe(items)
        for item in items:
            item.answer(DatabaseAway("the database does not answer; ask again later"))

    def _transact(self, items: list[Queued]) -> None:
        """Serve a batch in one transaction, then answer."""
        requests = {item.token_hash: item.request for item in items}
        parked = {item.token_hash for item in items if item.was_parked}
        conn, buffer = self._connection(), self._open_buffer()
        served = transact(conn, buffer, self._dispatcher, requests, parked)
        if self._traced is not None:
            self._traced.tell()
        if served.feeder_wanted:
            wake_up.notify(self._buffer_path)
        _observe(items)
        for item in items:
            outcome = served.answers[item.token_hash]
            if isinstance(outcome, ReplyParts):
                outcome.epoch = self._epoch
            item.may_find_more = served.leaves_some
            item.answer(outcome)

    def _connection(self) -> db.PostgresConnection:
        if self._conn is None or self._conn.closed:
            name = db.web_process(self.generation)
            conn = db.connect(self._dsn, name, autocommit=True)
            conn.execute(SQL["planner"])
            epoch = fetch_value(conn, int, SQL["epoch"])
            assert epoch is not None, "it is there since the first migration"
            self._epoch, self._conn = epoch, conn
        return self._conn

    def _open_buffer(self) -> SchedulingBuffer | None:
        """The buffer as the feeder made it last, or None before that."""
        if self._buffer is None or not self._buffer.is_current():
            if self._buffer is not None:
                self._buffer.close()
            try:
                self._buffer = SchedulingBuffer(self._buffer_path)
            except BufferMissing as error:
                log.warning("%s", error)
                self._buffer = None
        return self._buffer


def _observe(items: Iterable[Queued]) -> None:
    """Let the metrics know how long requests have taken that are answered now."""
    now = time.monotonic()
    metrics.WORK_SECONDS.observe_all(now - item.came_at for item in items)


def _read(body: bytes) -> WorkRequest:
    try:
        return read_request(body)
    except ProtocolError as error:
        raise RequestError(str(error)) from None
