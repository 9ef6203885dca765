"""Makes a submission part of a trace: the caller's, that of TRACEPARENT, or a new one.

The light installation has no OpenTelemetry: it hands on the TRACEPARENT that it was given.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gridbot_client.protocol.traces import HEADER, Trace, read_traceparent
from gridbot_client.spans import TraceSpan, spans_of

VARIABLE = "TRACEPARENT"  # as other programs hand a trace to the programs that they start
_NAME = "gridbot submit"


@contextmanager
def submission(environment: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Give the headers of a request that submits, while the span of the submission lasts.

    A caller with an active span gets a child of it, in its own way of exporting.  Otherwise the
    span goes to the collector that the environment names, if OpenTelemetry is installed.
    """
    if _has_active_span():
        with _child_of_active() as headers:
            yield headers
        return
    parent = read_traceparent(environment.get(VARIABLE))
    spans = spans_of("gridbot submit", environment)
    if spans is None:
        yield {} if parent is None else {HEADER: parent.header()}
        return
    ours = Trace(secrets.token_bytes(16) if parent is None else parent.id, secrets.token_bytes(8))
    began, error = time.time(), None
    try:
        yield {HEADER: ours.header()}
    except BaseException as raised:
        error = type(raised).__name__
        raise
    finally:
        of_parent = None if parent is None else parent.span
        spans.add(
            [
                TraceSpan(
                    name=_NAME, trace=ours.id, id=ours.span, parent=of_parent, start=began,
                    end=time.time(), error=error, kind="CLIENT",
                )
            ]
        )  # fmt: skip
        spans.close()


def _has_active_span() -> bool:
    """Whether the caller traces itself: then it has imported OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:
        return False
    from opentelemetry.trace import get_current_span

    return get_current_span().get_span_context().is_valid


@contextmanager
def _child_of_active() -> Iterator[Mapping[str, str]]:
    from opentelemetry.trace import SpanKind, get_tracer

    with get_tracer("gridbot").start_as_current_span(_NAME, kind=SpanKind.CLIENT) as span:
        context = span.get_span_context()
        ours = Trace(context.trace_id.to_bytes(16), context.span_id.to_bytes(8))
        yield {HEADER: ours.header()} if context.trace_flags.sampled else {}
