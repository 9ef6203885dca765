"""Polls of open pages, which the event loop of a web process answers."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from flask import Flask
from gunicorn.workers.gthread import TConn
from tests.unit.server.test_gunicorn_fence import closed, made_worker

from gridbot_server.console.shared import SharedContents
from gridbot_server.http import sessions
from gridbot_server.web.worker import WebWorker

COOKIE = "cookie"
HTML = b"<p>how far it is</p>"


@pytest.fixture
def pages() -> SharedContents:
    """A page that somebody looks at."""
    made = SharedContents(clock=lambda: 0.0)
    made.remember(COOKIE, ["ada"])
    form = b"<p>%s</p>" % made.placeholder.encode()
    made.get("/bots/7", "ada", 1000.0, lambda: ("title", HTML + form))
    return made


@pytest.fixture
def worker(pages: SharedContents) -> Iterator[Any]:
    """A web process whose threads serve nothing any more."""
    made = made_worker(WebWorker)
    made.wsgi = Flask("nothing")
    made.wsgi.extensions["gridbot_console"] = pages
    made.tpool.shutdown()
    yield made
    closed(made)


@contextmanager
def browser(worker: Any) -> Iterator[tuple[Any, socket.socket]]:
    """A connection of the worker's, and its peer."""
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    worker.nr_conns += 1
    with ours, peer:
        peer.settimeout(30)
        yield TConn(worker.cfg, ours, ("127.0.0.1", 1), ("127.0.0.1", 2)), peer


def asked(etag: str, path: str = "/bots/7", cookie: str = COOKIE) -> bytes:
    fields = f"Host: here\r\nCookie: {sessions.COOKIE}={cookie}\r\nIf-None-Match: {etag}\r\n"
    return f"GET {path}?live HTTP/1.1\r\n{fields}\r\n".encode()


def answer(peer: socket.socket) -> http.client.HTTPResponse:
    found = http.client.HTTPResponse(peer)
    found.begin()
    return found


def test_polls_of_open_pages_are_answered_without_a_thread(worker: Any) -> None:
    with browser(worker) as (conn, peer):
        peer.sendall(asked('"nothing yet"'))
        worker.enqueue_req(conn)
        first = answer(peer)
        html = first.read()
        assert (first.status, html[: len(HTML)]) == (200, HTML)
        assert sessions.form_token(COOKIE).encode() in html
        peer.sendall(asked(first.headers["ETag"]))
        worker.on_client_socket_readable(conn, conn.sock)
        again = answer(peer)
        assert (again.status, again.read()) == (304, b"")
        assert again.headers["ETag"] == first.headers["ETag"]
        assert again.headers["Cache-Control"] == "no-store"


def test_polls_that_follow_each_other_at_once_are_each_answered(worker: Any) -> None:
    with browser(worker) as (conn, peer):
        peer.sendall(2 * asked('"nothing yet"'))
        worker.enqueue_req(conn)
        worker.on_client_socket_readable(conn, conn.sock)
        assert [answer(peer).status, worker.nr_conns] == [200, 1]


@pytest.mark.parametrize(
    "data", [asked('"x"', cookie="another"), asked('"x"', path="/bots/8"), asked('"x"', path="/")]
)
def test_what_is_not_known_is_left_unread_to_a_thread(worker: Any, data: bytes) -> None:
    with browser(worker) as (conn, peer):
        peer.sendall(data)
        with pytest.raises(RuntimeError, match="after shutdown"):
            worker.enqueue_req(conn)
        assert conn.sock.recv(10_000) == data
