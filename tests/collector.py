"""An OpenTelemetry collector for tests: takes spans by OTLP over HTTP, and keeps them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Taken:
    """A span as it came."""

    service: str
    name: str
    trace: str  # in hex, as the others
    id: str
    parent: str
    start: int  # ns since 1970
    end: int
    failed: bool
    attributes: dict[str, Any]

    @property
    def replica(self) -> tuple[int, int]:
        """The job and the number of the replica that it tells of."""
        return self.attributes["gridbot.job"], self.attributes["gridbot.replica"]


@dataclass
class Collector:
    """What a collector was sent; `answer` is the status of its answers."""

    url: str
    answer: int = 200
    spans: list[Taken] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    hold: Callable[[], None] = lambda: None  # before it answers

    def named(self, name: str) -> list[Taken]:
        """The spans of a name."""
        return [span for span in list(self.spans) if span.name == name]


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.hold()
            made.bodies.append(body)
            if made.answer == 200 and self.path == "/v1/traces":
                made.spans += _spans(body)
            self.send_response(made.answer)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _spans(body: bytes) -> Iterator[Taken]:
    request = ExportTraceServiceRequest.FromString(body)
    for resource in request.resource_spans:
        service = _values(resource.resource.attributes)["service.name"]
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            yield Taken(
                service, span.name, span.trace_id.hex(), span.span_id.hex(),
                span.parent_span_id.hex(), span.start_time_unix_nano, span.end_time_unix_nano,
                span.status.code == span.status.STATUS_CODE_ERROR, _values(span.attributes),
            )  # fmt: skip


def _values(attributes: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in attributes}
