"""The undocumented names of gunicorn's threaded worker that our web worker stands on.

`FENCE` names each with its shape.  A release of gunicorn that changes one of them fails here, not
in front of clients; a name that our code begins to use fails until it is written down.
"""

from __future__ import annotations

import ast
import errno
import inspect
import io
import os
import re
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any, TypeGuard

import gunicorn.sock
import pytest
from gunicorn.config import KNOWN_SETTINGS, Config
from gunicorn.glogging import Logger
from gunicorn.http.parser import RequestParser
from gunicorn.workers import base, gthread
from gunicorn.workers.gthread import TConn, ThreadWorker

from gridbot_server.web.connections import ConnectionQueue, ConnectionWorker
from gridbot_server.web.worker import WebWorker

SERVER = Path(inspect.getfile(WebWorker)).parents[1]
MODULES = (
    *sorted((SERVER / "web").glob("*.py")),
    SERVER / "http" / "slow_readers.py",
    SERVER / "overload" / "slow_senders.py",
)

# A type, the parameters of a function, or None for our own application.
Shape = type | tuple[str, ...] | None

FENCE: dict[str, Shape] = {
    # Methods of the worker that we extend or call, and those that its loop calls.
    "worker.init_process": (),
    "worker.accept": ("listener",),
    "worker.set_accept_enabled": ("enabled",),
    "worker.enqueue_req": ("conn",),
    "worker.on_client_socket_readable": ("conn", "client"),
    "worker.on_pending_socket_readable": ("conn", "client"),
    "worker.finish_request": ("conn", "fs"),
    "worker.murder_pending": (),
    "worker.handle": ("conn",),
    "worker.handle_request": ("req", "conn"),
    "worker.handle_error": ("req", "client", "addr", "exc"),
    "worker._keepalive_after": ("conn", "keepalive"),
    # Its state.
    "worker.alive": bool,
    "worker.cfg": Config,
    "worker.wsgi": None,
    "worker.nr_conns": int,
    "worker.worker_connections": int,
    "worker.max_keepalived": int,
    "worker.keepalived_conns": deque,
    "worker.pending_conns": deque,
    "worker.poller": selectors.BaseSelector,
    "worker.tpool": ThreadPoolExecutor,
    "worker.method_queue.defer": ("callback", "args"),
    # A listening socket, wrapped.
    "listener.accept": (),
    "listener.getsockname": BuiltinFunctionType,
    # A connection.
    "connection.sock": socket.socket,
    "connection.initialized": bool,
    "connection.timeout": float,
    "connection.parser": RequestParser,
    "connection.parser.unreader.sock": socket.socket,
    "connection.parser.unreader.buf": io.BytesIO,
    "connection.client": tuple,
    "connection.init": (),
    "connection.close": ("graceful",),
    # The socket of a request, in its WSGI environment.
    "environ.gunicorn.socket": socket.socket,
}


# ------------------------------------------------------------------------- gunicorn's real things


@pytest.fixture
def worker() -> Iterator[Any]:
    made = made_worker()
    yield made
    closed(made)


def made_worker(kind: type[ThreadWorker] = ThreadWorker) -> Any:
    """A worker as its process begins, without the process: it has no application and no loop."""
    cfg = Config()
    made = kind(1, os.getpid(), [], None, 30, cfg, Logger(cfg))
    made.wsgi = nothing
    begin = base.Worker.init_process
    base.Worker.init_process = lambda self: None  # it would serve until the end
    try:
        made.init_process()
    finally:
        base.Worker.init_process = begin
    return made


def nothing(environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
    """The least application."""
    start("200 OK", [("Content-Length", "0")])
    return []


def closed(made: Any) -> None:
    made.tpool.shutdown()
    made.poller.close()
    made.method_queue.close()
    made.tmp.close()


@pytest.fixture
def pair(worker: Any) -> Iterator[tuple[Any, socket.socket]]:
    """A connection of the worker's, and its peer."""
    ours, peer = socket.socketpair()
    conn = TConn(worker.cfg, ours, ("127.0.0.1", 1), ("127.0.0.1", 2))
    worker.nr_conns += 1
    with ours, peer:
        peer.settimeout(10)
        yield conn, peer


@pytest.fixture
def things(worker: Any, pair: tuple[Any, socket.socket]) -> Iterator[dict[str, Any]]:
    conn, peer = pair
    conn.init()
    conn.set_timeout()
    environ: dict[str, Any] = {}

    def application(given: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        environ.update(given)
        return nothing(given, start)

    worker.wsgi = application
    peer.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
    assert worker.handle(conn)
    with closing(gunicorn.sock.TCPSocket(("127.0.0.1", 0), worker.cfg, worker.log)) as listener:
        yield {"worker": worker, "connection": conn, "listener": listener, "environ": environ}


def found(things: dict[str, Any], name: str) -> Any:
    root, _, rest = name.partition(".")
    if root == "environ":
        return things[root][rest]
    value = things[root]
    for step in rest.split("."):
        value = getattr(value, step)
    return value


@pytest.mark.parametrize("name", FENCE)
def test_gunicorn_has_what_we_use_in_the_shape_in_which_we_use_it(
    name: str, things: dict[str, Any]
) -> None:
    value, shape = found(things, name), FENCE[name]
    if isinstance(shape, tuple):
        assert tuple(inspect.signature(value).parameters) == shape
    elif shape is not None:
        assert isinstance(value, shape)


# ------------------------------------------------------------------------------ what our code uses


def used(tree: ast.AST) -> Iterator[str]:
    """What a module takes of a worker, a connection and a listener, be it gunicorn's or ours."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and {"ThreadWorker", "ConnectionWorker"} & bases(node):
            yield from (f"worker.{item.name}" for item in node.body if is_function(item))
            yield from paths(node, "self", "worker")
    yield from paths(tree, "conn", "connection")
    yield from paths(tree, "listener", "listener")
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if text.startswith("gunicorn."):
                yield f"environ.{text}"


def bases(node: ast.ClassDef) -> set[str]:
    return {item.id for item in node.bases if isinstance(item, ast.Name)}


def is_function(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef) and not node.name.startswith("__")


def paths(tree: ast.AST, variable: str, root: str) -> Iterator[str]:
    """Whole chains of attributes that begin at a variable; `super()` is `self`."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    inner = {id(node.value) for node in nodes}
    for node in nodes:
        steps: list[str] = []
        value: ast.expr = node
        while isinstance(value, ast.Attribute):
            steps.insert(0, value.attr)
            value = value.value
        if id(node) not in inner and variable_of(value) == variable and steps[0] != "__init__":
            yield ".".join([root, *steps])


def variable_of(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return "self" if variable_of(node.func) == "super" else ""
    return node.id if isinstance(node, ast.Name) else ""


def fence_of(name: str) -> str:
    """The entry of the fence that a name begins with, the longest; empty if there is none."""
    entries = [entry for entry in FENCE if f"{name}.".startswith(f"{entry}.")]
    return max(entries, key=len, default="")


def is_fenced(name: str) -> bool:
    """Whether a name is in the fence, or a documented attribute of something in it."""
    entry = fence_of(name)
    step = name.removeprefix(entry).lstrip(".").partition(".")[0]
    shape = FENCE.get(entry)
    if shape is Config:
        return not step or step in {setting.name for setting in KNOWN_SETTINGS}
    is_standard = isinstance(shape, type) and not shape.__module__.startswith("gunicorn")
    return bool(entry) and (not step or shape is None or (is_standard and hasattr(shape, step)))


def beyond(names: Iterable[str], worker: Any, conn: Any) -> set[str]:
    """Those of the names that are gunicorn's, or nobody's, and not in the fence."""
    theirs = {f"worker.{name}" for name in dir(worker)} | {
        f"connection.{name}" for name in dir(conn)
    }
    defined = {f"worker.{name}" for kind in (ConnectionWorker, WebWorker) for name in vars(kind)}
    own = (defined | assigned()) - theirs
    return {
        name for name in names if ".".join(name.split(".")[:2]) not in own and not is_fenced(name)
    }


def assigned() -> set[str]:
    """What our code puts on a worker or a connection."""
    return {
        path
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        for path in (*paths(node, "self", "worker"), *paths(node, "conn", "connection"))
    }


def all_used() -> set[str]:
    return {name for module in MODULES for name in used(ast.parse(module.read_text()))}


def test_our_code_uses_nothing_of_gunicorn_that_is_not_in_the_fence(
    worker: Any, pair: tuple[Any, socket.socket]
) -> None:
    assert beyond(all_used(), worker, pair[0]) == set()


def test_our_code_uses_all_that_is_in_the_fence() -> None:
    assert {fence_of(name) for name in all_used() if is_fenced(name)} == FENCE.keys()


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("self._accepting", "worker._accepting"),
        ("super().murder_keepalived()", "worker.murder_keepalived"),
        ("self.keepalived_conns.sort()", "worker.keepalived_conns.sort"),
        ("self.method_queue._queue.put(1)", "worker.method_queue._queue.put"),
        ("self.cfg.no_such_setting", "worker.cfg.no_such_setting"),
        ("conn.data_ready = True", "connection.data_ready"),
        ("conn.parser.unreader.chunk()", "connection.parser.unreader.chunk"),
        ("listener.cfg_addr", "listener.cfg_addr"),
        ("x['gunicorn.http2.send_trailers']", "environ.gunicorn.http2.send_trailers"),
        ("self.nobody_has_this", "worker.nobody_has_this"),
    ],
)
def test_a_name_beyond_the_fence_is_seen(
    body: str, name: str, worker: Any, pair: tuple[Any, socket.socket]
) -> None:
    source = f"class W(ThreadWorker):\n    def _own(self, conn, listener, x):\n        {body}\n"
    names = set(used(ast.parse(source))) - {"worker._own"}
    assert beyond(names, worker, pair[0]) == {name}


def test_a_method_of_gunicorn_that_is_replaced_is_seen(
    worker: Any, pair: tuple[Any, socket.socket]
) -> None:
    source = "class W(ThreadWorker):\n    def murder_keepalived(self):\n        pass\n"
    assert beyond(used(ast.parse(source)), worker, pair[0]) == {"worker.murder_keepalived"}


def test_one_module_alone_imports_gunicorns_worker() -> None:
    importing = {
        str(file.relative_to(SERVER))
        for file in SERVER.rglob("*.py")
        if re.search(r"^\s*(from|import) gunicorn\b", file.read_text(), re.M)
    }
    assert importing == {"web/connections.py"}


# ------------------------------------------------------------------- what gunicorn does with them


def turn(worker: Any) -> None:
    """One turn of the loop, which has something to do."""
    worker.poller.register(
        worker.method_queue.fileno(), selectors.EVENT_READ, worker.method_queue.run_callbacks
    )
    worker.wait_for_and_dispatch_events(timeout=10)


def test_what_another_thread_defers_runs_in_the_loop(worker: Any) -> None:
    ran: list[tuple[str, int]] = []
    thread = threading.Thread(
        target=worker.method_queue.defer,
        args=(lambda word: ran.append((word, threading.get_ident())), "here"),
    )
    thread.start()
    thread.join()
    turn(worker)
    assert ran == [("here", threading.get_ident())]


def test_the_loop_accepts_and_closes_what_has_waited_too_long() -> None:
    names = ThreadWorker.run.__code__.co_names
    calls = {"set_accept_enabled", "murder_pending", "wait_for_and_dispatch_events", "notify"}
    assert calls <= set(names)
    assert {"nr_conns", "worker_connections"} <= set(names)


def test_a_kept_connection_is_queued_again_when_its_peer_sends(
    worker: Any, pair: tuple[Any, socket.socket]
) -> None:
    conn, peer = pair
    queued: list[Any] = []
    worker.enqueue_req = queued.append
    conn.init()
    worker.finish_request(conn, future(True))
    assert list(worker.keepalived_conns) == [conn]
    peer.sendall(b"G")
    turn(worker)
    assert (queued, list(worker.keepalived_conns)) == ([conn], [])


def test_a_connection_that_is_not_kept_is_closed_and_no_longer_counted(
    worker: Any, pair: tuple[Any, socket.socket]
) -> None:
    conn, peer = pair
    peer.close()
    worker.finish_request(conn, future(False))
    assert (worker.nr_conns, conn.sock.fileno()) == (0, -1)


def test_a_pending_connection_is_queued_when_its_peer_sends(
    worker: Any, pair: tuple[Any, socket.socket]
) -> None:
    conn, peer = pair
    queued: list[Any] = []
    worker.enqueue_req = queued.append
    pend(worker, conn, seconds=60.0)
    worker.murder_pending()
    peer.sendall(b"G")
    turn(worker)
    assert (queued, list(worker.pending_conns)) == ([conn], [])


def test_a_pending_connection_whose_time_is_over_is_closed_and_no_longer_counted(
    worker: Any, pair: tuple[Any, socket.socket]
) -> None:
    conn, _ = pair
    pend(worker, conn, seconds=0.0)
    worker.murder_pending()
    assert (worker.nr_conns, list(worker.pending_conns), conn.sock.fileno()) == (0, [], -1)


def pend(worker: Any, conn: Any, seconds: float) -> None:
    conn.timeout = time.monotonic() + seconds
    worker.pending_conns.append(conn)
    readable = partial(worker.on_pending_socket_readable, conn)
    worker.poller.register(conn.sock, selectors.EVENT_READ, readable)


def future(result: bool) -> Future[bool]:
    made: Future[bool] = Future()
    made.set_result(result)
    return made


def test_a_connection_has_a_parser_once_it_is_begun(pair: tuple[Any, socket.socket]) -> None:
    conn, _ = pair
    assert (conn.initialized, conn.parser) == (False, None)
    conn.init()
    assert conn.initialized
    assert conn.parser is not None


def test_a_request_is_read_through_the_socket_that_its_reader_is_given(
    worker: Any, pair: tuple[Any, socket.socket]
) -> None:
    conn, peer = pair
    sizes = []

    class Counting:
        def recv(self, most: int) -> bytes:
            data: bytes = conn.sock.recv(most)
            sizes.append(len(data))
            return data

        def __getattr__(self, name: str) -> Any:
            return getattr(conn.sock, name)

    request = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
    conn.init()
    conn.parser.unreader.sock = Counting()
    peer.sendall(request + b"GET")
    assert worker.handle(conn)
    assert sum(sizes) == len(request + b"GET")
    assert conn.parser.unreader.buf.getvalue() == b"GET"


def test_nothing_is_logged_of_a_peer_that_is_reset_for_its_slowness(
    worker: Any, pair: tuple[Any, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    conn, peer = pair

    def application(environ: Any, start: Any) -> list[bytes]:
        raise ConnectionResetError(errno.ECONNRESET, "it is too slow")

    worker.wsgi = application
    worker.log.error_log.propagate = True
    peer.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
    assert worker.handle(conn) is False
    assert caplog.records == []


def test_gunicorn_does_to_its_queues_of_connections_what_ours_can() -> None:
    tree = ast.parse(inspect.getsource(gthread))
    queues = {"keepalived_conns", "pending_conns"}
    done = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr in queues
    }
    indices = {
        ast.unparse(node.slice)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr in queues
    }
    assert done == {name for name in vars(ConnectionQueue) if not name.startswith("_")}
    assert indices == {"0"}
