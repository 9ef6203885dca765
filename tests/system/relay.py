"""A bad network: stands before a server, passes requests on, and loses or spoils replies."""

from __future__ import annotations

import http.client
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

# Gets a request's path and the reply's body; gives the body that arrives, or None: no reply does.
# A shorter body than the server's looks as if the connection broke in its midst.
Spoil = Callable[[str, bytes], bytes | None]

# They belong to one connection, not to the message.
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "host"}


def faithful(_: str, body: bytes) -> bytes:
    """Spoil nothing."""
    return body


class Relay(ThreadingHTTPServer):
    """The server's reply is complete, hence committed, before anything happens to it."""

    daemon_threads = True
    is_open = True
    spoil: Spoil = staticmethod(faithful)

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.port_behind = port
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """Passes one request on; what fails otherwise than by a lost reply is a subclass's `ask`."""

    protocol_version = "HTTP/1.1"
    server: Relay

    def _relay(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer, content = self.ask(body) if self.server.is_open else (None, b"")
        arrives = self.server.spoil(self.path, content) if answer else None
        if answer is None or arrives is None:
            self.close_connection = True
            return
        self.send_response(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(arrives)
        self.close_connection = self.close_connection or len(arrives) < len(content)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _relay

    def ask(self, body: bytes) -> tuple[http.client.HTTPResponse | None, bytes]:
        """Let the server answer; None breaks the connection."""
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
        behind = http.client.HTTPConnection("127.0.0.1", self.server.port_behind, timeout=60)
        try:
            behind.request(self.command, self.path, body or None, headers)
            if self._is_given_up(behind.sock):
                return None, b""
            answer = behind.getresponse()
            return answer, answer.read()
        finally:
            behind.close()

    def _is_given_up(self, behind: socket.socket) -> bool:
        """Wait for the server's answer; true if the client hangs up before it comes."""
        ready, _, _ = select.select([behind, self.connection], [], [], 60)
        return behind not in ready and self.connection.recv(1, socket.MSG_PEEK) == b""

    def handle(self) -> None:
        with suppress(ConnectionError, socket.timeout):  # a client that was killed, above all
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


R = TypeVar("R", bound=Relay)


@contextmanager
def serving(made: R) -> Iterator[R]:
    """Let a relay pass on what comes."""
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


@contextmanager
def relay(port: int) -> Iterator[Relay]:
    """A relay before the server at that port of this machine."""
    with serving(Relay(port)) as made:
        yield made
