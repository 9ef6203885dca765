"""What the views of one web process share: settings, database pool, file store, engine, limits."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, cast

from flask import current_app
from psycopg_pool import ConnectionPool

from gridbot_client.protocol.messages import WorkRequest
from gridbot_server.dispatch.candidates import Candidate
from gridbot_server.dispatch.engine import Queued
from gridbot_server.dispatch.replies import ReplyParts
from gridbot_server.metrics.traces import Tracing
from gridbot_server.overload.buckets import BucketFile
from gridbot_server.overload.login_limits import LoginLimits
from gridbot_server.overload.rate_limit import RateLimiter
from gridbot_server.overload.transfer_slots import Slots
from gridbot_server.settings import Settings
from gridbot_server.signing.stock_clients import StockClients
from gridbot_server.storage import db
from gridbot_server.storage.files import Store

# The views' threads share few connections: a view holds one for milliseconds.
_CONNECTIONS = 8
_WAIT_SECONDS = 5.0
# Each takes a process of its own for up to 45 s; of two, one who asks gets one.
_PREDICTIONS = 2
# Each look evaluates the policies of many BOTs: a burst, and the seconds between later ones.
_PROSPECTS = (10, 20.0)


class Rendered(Protocol):
    """An answer, as soon as somebody wants its bytes."""

    @property
    def mimetype(self) -> str:
        """What the bytes are."""

    def render(self) -> bytes:
        """The bytes."""


class Answered(Protocol):
    """A request that has its answer."""

    def result(self) -> Rendered:
        """Return the reply, or raise one of the errors of `errors`."""


class Dispatched(Protocol):
    """A request that the engine has answered."""

    def result(self) -> ReplyParts:
        """Return the reply, or raise one of the errors of `errors`."""


class WorkEngine(Protocol):
    """Answers hosts' requests for work, many in one transaction."""

    def handle(self, token_hash: bytes, body: bytes) -> bytes:
        """Return the reply to one `POST /rpc`; raise the errors of `errors`."""

    def begin(self, token_hash: bytes, body: bytes, tell: Callable[[Answered], None]) -> None:
        """Queue one `POST /rpc`; another thread calls `tell` when it is answered."""

    def take(
        self, token_hash: bytes, request: WorkRequest, tell: Callable[[Dispatched], None]
    ) -> None:
        """Queue what a request in another protocol is to be answered, as `begin` does."""

    def ask_again(self, item: Queued) -> None:
        """Queue a request that found no work once more."""

    @property
    def candidates(self) -> Collection[Candidate]:
        """The BOTs in the buffer when a request for work was served last."""

    def close(self) -> None:
        """Finish what is queued, then stop."""


@dataclass
class Services:
    """Made with the application, opened on first use: after gunicorn has forked."""

    settings: Settings
    store: Store
    stock_clients: StockClients
    make_engine: Callable[[], WorkEngine]
    tracing: Tracing | None = None  # None: no collector
    uploads: Slots = field(init=False)
    downloads: Slots = field(init=False)
    predictions: Slots = field(init=False)
    prospects: RateLimiter = field(init=False)  # of looks at what there is for a client
    storages: Slots = field(init=False)  # of requests that wait for an owner's storage
    before_close: list[Callable[[], None]] = field(default_factory=list)  # what uses the engine
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pool: ConnectionPool[db.PostgresConnection] | None = None
    _engine: WorkEngine | None = None
    _buckets: BucketFile | None = None
    _login_limits: LoginLimits | None = None
    _pid: int = 0

    def __post_init__(self) -> None:
        # Slow transfers, even of both kinds, must leave threads to all other requests.
        threads = self.settings.web_threads
        self.uploads = Slots(max(1, threads // 2))
        self.downloads = Slots(max(1, threads * 3 // 8))
        self.predictions = Slots(_PREDICTIONS, "predictions")
        self.prospects = RateLimiter(os.urandom(16), *_PROSPECTS)
        self.storages = Slots(max(1, threads // 4))

    @property
    def pool(self) -> ConnectionPool[db.PostgresConnection]:
        """Return this process's connections, opening them on first use."""
        if self._pool is None or self._pid != os.getpid():
            with self._lock:
                if self._pool is None or self._pid != os.getpid():
                    self._pool, self._pid = _open_pool(self.settings), os.getpid()
        return self._pool

    @property
    def engine(self) -> WorkEngine:
        """Return this process's engine, made on first use."""
        with self._lock:
            if self._engine is None:
                self._engine = self.make_engine()
        return self._engine

    @property
    def login_limits(self) -> LoginLimits:
        """Return the limits on passwords, accounts and new hosts, opened on first use."""
        with self._lock:
            if self._login_limits is None:
                self._buckets = BucketFile(self.settings.run / "counts")
                self._login_limits = LoginLimits.of(self._buckets)
            return self._login_limits

    def close(self) -> None:
        """Stop the engine, give the connections back; the next request opens them again."""
        while self.before_close:
            self.before_close.pop()()
        with self._lock:
            if self._engine is not None:
                self._engine.close()
                self._engine = None
            if self._buckets is not None:
                self._buckets.close()
                self._buckets = self._login_limits = None
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self.tracing is not None:
            self.tracing.close()


def current() -> Services:
    """Return the services of the application that serves this request."""
    return cast(Services, current_app.extensions["gridbot"])


@contextmanager
def connection() -> Iterator[db.PostgresConnection]:
    """Borrow a connection; each statement is its own transaction unless one is begun."""
    with current().pool.connection() as conn:
        yield conn


def _open_pool(settings: Settings) -> ConnectionPool[db.PostgresConnection]:
    # The check at checkout replaces connections that a restarted PostgreSQL has closed.
    return ConnectionPool(
        settings.dsn_or_embedded,
        connection_class=db.SafeConnection,
        kwargs={
            "application_name": "gridbot web",
            "options": db.TIMEOUTS,
            "autocommit": True,
            **db.REACHED,
        },
        min_size=1,
        max_size=_CONNECTIONS,
        timeout=_WAIT_SECONDS,
        reconnect_timeout=_WAIT_SECONDS,  # then the next request tries anew, without its backoff
        max_idle=300.0,
        check=ConnectionPool.check_connection,
        name="gridbot web",
        open=True,
    )
