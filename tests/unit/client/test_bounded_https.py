"""Peers that answer slowly, without an end, or as they should."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests
from tests.certificates import certified

from gridbot_client.net.bounded_https import bounded_session

Answering = Callable[[BaseHTTPRequestHandler, threading.Event], None]


@contextmanager
def peer(folder: Path, answer: Answering) -> Iterator[str]:
    """Somebody's server by HTTPS; its certificate is `localhost.pem` in the folder."""
    is_over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer(self, is_over)

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certified(folder, "localhost"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"https://localhost:{server.server_address[1]}/"
    finally:
        is_over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def drip(handler: BaseHTTPRequestHandler, is_over: threading.Event) -> None:
    """Send a byte now and then, until nobody reads."""
    while not is_over.wait(0.05):
        try:
            handler.wfile.write(b"x")
        except OSError:
            return


def drip_head(handler: BaseHTTPRequestHandler, is_over: threading.Event) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    drip(handler, is_over)
    handler.close_connection = True


def drip_body(handler: BaseHTTPRequestHandler, is_over: threading.Event) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    drip(handler, is_over)
    handler.close_connection = True


def say(handler: BaseHTTPRequestHandler, _: threading.Event) -> None:
    """Answer, and tell the asker's port."""
    handler.send_response(200)
    handler.send_header("Content-Length", "2000")
    handler.end_headers()
    handler.wfile.write(str(handler.client_address[1]).encode().ljust(2000))


@pytest.mark.parametrize("answer", [drip_head, drip_body])
def test_who_drips_the_head_or_the_body_of_an_answer_is_left(
    tmp_path: Path, answer: Answering
) -> None:
    with (
        peer(tmp_path, answer) as url,
        bounded_session(1.0, 10**6) as session,
        pytest.raises(requests.ConnectionError, match="not there after 1 s"),
    ):
        session.get(url, verify=str(tmp_path / "localhost.pem"), timeout=60.0)


def test_answers_come_whole_by_one_connection_and_a_longer_one_is_refused(tmp_path: Path) -> None:
    with peer(tmp_path, say) as url:
        trusted = str(tmp_path / "localhost.pem")
        with bounded_session(60.0, 2000) as session:
            first, second = (session.get(url, verify=trusted).content for _ in range(2))
        assert (len(first), second) == (2000, first)
        with (
            bounded_session(60.0, 1999) as session,
            pytest.raises(requests.ConnectionError, match="longer than"),
        ):
            session.get(url, verify=trusted)
