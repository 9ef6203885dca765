"""Sends spans to an OpenTelemetry collector, by OTLP over HTTP.

OpenTelemetry's packages are an extra (`gridbot[otel]`), and are imported with the first span.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

TIMEOUT = "OTEL_EXPORTER_OTLP_TIMEOUT"  # s
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

_MOST_QUEUED = 2048
_BATCH = 256
_SEND_SECONDS = 5.0  # for a batch, attempts included, unless TIMEOUT says another time
_CLOSE_SECONDS = 2.0  # the same for what is queued at the end
_MOST_SECONDS = 600.0  # that TIMEOUT may say
_GATHER_SECONDS = 0.5  # that a span waits for others


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSpan:
    """What happened, from when to when, in seconds since 1970."""

    name: str
    trace: bytes
    id: bytes
    parent: bytes | None
    start: float
    end: float
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    error: str | None = None  # why it failed; None: it did not
    kind: str = "INTERNAL"  # or CLIENT, SERVER: who asks whom


def uncounted(_sent: int, _lost: int) -> None:
    """Count no spans."""


class Spans:
    """Spans on their way to a collector; safe for many threads, and never waits for it.

    Those that find the queue full are lost, and those that the collector does not take.
    Make it before or after a fork; its thread begins with the first span.
    """

    def __init__(
        self, service: str, endpoint: str | None = None,
        count: Callable[[int, int], None] = uncounted,
    ) -> None:  # fmt: skip
        """`endpoint` is a collector's URL, None what the environment names.

        `count` is called with numbers of spans that were sent, and that were lost.
        """
        self._service, self._endpoint, self._count = service, endpoint, count
        self._queue = queue.Queue[TraceSpan | None](_MOST_QUEUED)
        self._lock = threading.Lock()
        self._sender: threading.Thread | None = None
        self._is_closed = False

    def add(self, spans: Sequence[TraceSpan]) -> None:
        """Send spans soon."""
        if not spans:
            return
        with self._lock:
            if self._sender is None and not self._is_closed:
                self._sender = threading.Thread(target=self._run, name="spans", daemon=True)
                self._sender.start()
        lost = 0
        for span in spans:
            try:
                self._queue.put_nowait(span)
            except queue.Full:
                lost += 1
        if lost:
            self._count(0, lost)

    def close(self) -> None:
        """Send what is queued, for a moment."""
        seconds = _patience(_CLOSE_SECONDS)
        with self._lock:
            self._is_closed = True
            sender = self._sender
        if sender is not None:
            with contextlib.suppress(queue.Full):
                self._queue.put(None, timeout=seconds)
                sender.join(seconds)

    def _run(self) -> None:
        exporter, resource = _exporter(self._endpoint), _resource(self._service)
        try:
            is_open = True
            while is_open:
                batch, is_open = self._gather()
                if batch:
                    self._send(exporter, [_readable(span, resource) for span in batch])
        finally:
            exporter.shutdown()

    def _gather(self) -> tuple[list[TraceSpan], bool]:
        """Wait for spans; return them, and whether there may be more."""
        batch = list[TraceSpan]()
        while len(batch) < _BATCH:
            try:
                item = self._queue.get(timeout=_GATHER_SECONDS if batch else None)
            except queue.Empty:
                break
            if item is None:
                return batch, False
            batch.append(item)
        return batch, True

    def _send(self, exporter: SpanExporter, spans: Sequence[ReadableSpan]) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        try:
            is_sent = exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception:  # of a library: nothing that it raises may end this thread
            is_sent = False
        self._count(len(spans) if is_sent else 0, 0 if is_sent else len(spans))


def is_available() -> bool:
    """Whether the extra is installed."""
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def spans_of(service: str, environment: Mapping[str, str]) -> Spans | None:
    """Return where spans go if the environment names a collector, and the extra is installed."""
    is_wanted = any(environment.get(name) for name in ENDPOINTS)
    return Spans(service) if is_wanted and is_available() else None


def _patience(usual: float) -> float:
    """Seconds that a collector has; `usual` unless the environment says others that can be."""
    try:
        seconds = float(os.environ.get(TIMEOUT, ""))
    except ValueError:
        return usual
    return seconds if 0 < seconds <= _MOST_SECONDS else usual


def _exporter(endpoint: str | None) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    where = None if endpoint is None else f"{endpoint.rstrip('/')}/v1/traces"
    return OTLPSpanExporter(where, timeout=_patience(_SEND_SECONDS))


def _resource(service: str) -> Resource:
    from opentelemetry.sdk.resources import Resource

    return Resource.create({"service.name": service})


def _readable(span: TraceSpan, resource: Resource) -> ReadableSpan:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

    def context(id: bytes) -> SpanContext:
        trace, of_span = int.from_bytes(span.trace), int.from_bytes(id)
        return SpanContext(trace, of_span, is_remote=False, trace_flags=TraceFlags(1))

    return ReadableSpan(
        name=span.name,
        context=context(span.id),
        parent=None if span.parent is None else context(span.parent),
        resource=resource,
        attributes=dict(span.attributes),
        kind=SpanKind[span.kind],
        status=Status(StatusCode.OK if span.error is None else StatusCode.ERROR, span.error),
        start_time=int(span.start * 1e9),
        end_time=int(max(span.start, span.end) * 1e9),
        instrumentation_scope=InstrumentationScope("gridbot"),
    )
