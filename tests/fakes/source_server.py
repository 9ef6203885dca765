"""Somebody's file server on loopback: what it gives, how, and who asked for which range."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Behaviour = Callable[[BaseHTTPRequestHandler, "SourceServer"], None]


@dataclass
class SourceServer:
    """Files by path, and paths that behave as a test says."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    odd: dict[str, Behaviour] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)  # path, Range
    headers: list[dict[str, str]] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def file(self, path: str, content: bytes) -> str:
        """Add a file; return its URL."""
        self.files[path] = content
        return self.url + path

    def behaves(self, path: str, answer: Behaviour) -> str:
        """Let a path be answered otherwise; return its URL."""
        self.odd[path] = answer
        return self.url + path

    def ranges(self, path: str) -> list[str]:
        """Ranges that were asked for, "" for the whole."""
        return [asked for place, asked in self.asked if place == path]


@contextmanager
def source_server() -> Iterator[SourceServer]:
    """A server that runs."""
    place = SourceServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            place.asked.append((self.path, wanted))
            place.headers.append(dict(self.headers))
            if self.path in place.odd:
                place.odd[self.path](self, place)
            elif self.path in place.files:
                give(self, place.files[self.path], wanted)
            else:
                give(self, b"", code=404)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    place.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield place
    finally:
        place.is_over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def give(
    handler: BaseHTTPRequestHandler, content: bytes, wanted: str = "", code: int = 200,
    **headers: str,
) -> None:  # fmt: skip
    """Answer with a content, or with the rest of it that is wanted."""
    begin = int(wanted.removeprefix("bytes=").rstrip("-") or 0)
    handler.send_response(206 if begin else code)
    if begin:
        span = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        handler.send_header("Content-Range", span)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(content) - begin))
    handler.end_headers()
    with suppress(OSError):  # who asked has seen enough
        handler.wfile.write(content[begin:])


def leads(target: str) -> Behaviour:
    """Behaviour of a path that redirects."""
    return lambda handler, _: give(handler, b"", code=302, Location=target)


def drips(head: bytes) -> Behaviour:
    """Behaviour of a path that begins so, and then sends a byte now and then."""

    def answer(handler: BaseHTTPRequestHandler, place: SourceServer) -> None:
        handler.close_connection = True
        handler.wfile.write(head)
        while not place.is_over.wait(0.05):
            try:
                handler.wfile.write(b"x")
            except OSError:
                return

    return answer


def breaks_off(content: bytes, after: int) -> Behaviour:
    """Behaviour of a path whose answer ends too early."""

    def answer(handler: BaseHTTPRequestHandler, _: SourceServer) -> None:
        handler.close_connection = True
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[:after])

    return answer
