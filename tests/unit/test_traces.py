"""The header of a trace; spans that are sent to a collector, or lost, but never waited for."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
from tests.collector import collector

from gridbot.api import tracing
from gridbot_client.protocol.messages import (
    ProtocolError,
    SignedManifest,
    WorkReply,
    decode_reply,
    encode_reply,
)
from gridbot_client.protocol.traces import Trace, TracedBot, read_traceparent
from gridbot_client.spans import TIMEOUT, Spans, TraceSpan, spans_of

GOOD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ID, PARENT = GOOD.split("-")[1:3]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine has its time to send spans."""
    monkeypatch.setenv(TIMEOUT, "300")


def span(number: int = 1) -> TraceSpan:
    id = number.to_bytes(8)
    return TraceSpan(name="it", trace=bytes.fromhex(ID), id=id, parent=None, start=1.0, end=2.0)


@pytest.mark.parametrize("text", [GOOD, GOOD.replace("-01", "-ff"), "42-" + GOOD[3:] + "-more"])
def test_a_traceparent_is_read_also_of_later_versions(text: str) -> None:
    assert read_traceparent(text) == Trace(bytes.fromhex(ID), bytes.fromhex(PARENT))


@pytest.mark.parametrize(
    "text",
    [
        None, "", "00", GOOD.upper(), f" {GOOD}", f"{GOOD} ", f"{GOOD}\n", f"{GOOD}-more",
        "ff" + GOOD[2:], GOOD.replace(ID, "0" * 32), GOOD.replace(PARENT, "0" * 16),
        GOOD.replace("-01", "-1"), GOOD.replace("4b", "xy"), "42-" + GOOD[3:] + "-" + "x" * 600,
        GOOD.replace("4", "٤", 1),
    ],
)  # fmt: skip
def test_what_is_no_traceparent_is_ignored(text: str | None) -> None:
    assert read_traceparent(text) is None


def test_a_trace_that_nobody_records_is_ignored() -> None:
    assert read_traceparent(GOOD.replace("-01", "-00")) is None


def test_ids_of_spans_differ_by_trace_bot_job_replica_and_what_they_tell() -> None:
    trace = Trace(b"t" * 16, b"s" * 8)
    made = [
        trace.span_of("leased", 1, 2), trace.span_of("leased", 12, 0), trace.span_of("run", 1, 2),
        trace.span_of("leased", 1, 3), Trace(b"u" * 16, b"s" * 8).span_of("leased", 1, 2),
        Trace(b"t" * 16, b"r" * 8).span_of("leased", 1, 2),
    ]  # fmt: skip
    assert len(set(made)) == len(made)
    assert trace.span_of("leased", 1, 2) == made[0]


def test_clients_get_the_trace_with_the_manifest() -> None:
    bot = TracedBot(Trace(b"t" * 16, b"s" * 8), 100)
    sent = WorkReply(1, 0.0, manifests={"0" * 64: SignedManifest("{}", traced=bot)})
    assert decode_reply(encode_reply(sent)) == sent


def test_spans_are_sent_before_the_end() -> None:
    with collector() as there:
        spans = Spans("me", there.url)
        spans.add([span(1), span(2)])
        spans.close()
    assert [taken.id for taken in there.spans] == [(1).to_bytes(8).hex(), (2).to_bytes(8).hex()]
    assert {taken.service for taken in there.spans} == {"me"}


def test_spans_that_a_collector_refuses_are_counted() -> None:
    counted = list[tuple[int, int]]()
    with collector() as there:
        there.answer = 400
        spans = Spans("me", there.url, lambda sent, lost: counted.append((sent, lost)))
        spans.add([span()])
        spans.close()
    assert counted == [(0, 1)]


@pytest.mark.parametrize("seconds", ["soon", "nan", "1e9"])
def test_a_time_that_cannot_be_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, seconds: str
) -> None:
    gate, asked = threading.Event(), threading.Event()
    monkeypatch.setenv(TIMEOUT, seconds)

    def hold() -> None:
        asked.set()
        gate.wait(600.0)

    with collector() as there:
        there.hold = hold
        spans = Spans("me", there.url)
        spans.add([span()])
        assert asked.wait(60.0)
        spans.close()  # does not wait for the gate
        assert not there.bodies
        gate.set()


def test_a_command_waits_for_its_collector_as_long_as_the_environment_says() -> None:
    with collector() as there:
        there.hold = lambda: time.sleep(3.0)  # longer than is usual
        spans = Spans("me", there.url)
        spans.add([span()])
        spans.close()
    assert len(there.spans) == 1


def test_while_a_collector_hangs_spans_are_lost_and_nobody_waits() -> None:
    counted, gate, asked = list[tuple[int, int]](), threading.Event(), threading.Event()

    def hold() -> None:
        asked.set()
        gate.wait(600.0)

    with collector() as there:
        there.hold = hold
        spans = Spans("me", there.url, lambda sent, lost: counted.append((sent, lost)))
        spans.add([span()])
        assert asked.wait(60.0)
        spans.add([span(number) for number in range(1, 3001)])
        assert counted[0] == (0, 3000 - 2048)
        gate.set()
        spans.close()


def test_without_a_collector_nothing_is_imported_and_a_good_trace_is_handed_on() -> None:
    program = (
        "import sys\n"
        "from gridbot.api.tracing import submission\n"
        "from gridbot_client.spans import spans_of\n"
        "with submission({'TRACEPARENT': sys.argv[1]}) as headers: print(headers)\n"
        "with submission({'TRACEPARENT': 'no'}) as headers: print(headers)\n"
        "print(spans_of('me', {}), [m for m in sys.modules if m.startswith('opentelemetry')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, GOOD], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{{'traceparent': '{GOOD}'}}\n{{}}\nNone []\n"


def test_without_the_extra_a_collector_changes_nothing() -> None:
    program = (
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"
        "from gridbot.api.tracing import submission\n"
        "there = {'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://127.0.0.1:1'}\n"
        "with submission({'TRACEPARENT': sys.argv[1], **there}) as headers: print(headers)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, GOOD], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{{'traceparent': '{GOOD}'}}\n"


def test_a_caller_that_traces_itself_gets_a_child_of_its_span() -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import use_span

    with (
        use_span(TracerProvider().get_tracer("caller").start_span("theirs")) as theirs,
        tracing.submission({"TRACEPARENT": GOOD}) as headers,
    ):
        ours = read_traceparent(headers["traceparent"])
    assert ours is not None
    assert ours.id == theirs.get_span_context().trace_id.to_bytes(16)


def test_a_command_with_a_collector_begins_a_trace_and_tells_how_it_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with collector() as there:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": there.url}
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", there.url)
        with (
            pytest.raises(ProtocolError),
            tracing.submission(variables) as headers,
        ):
            raise ProtocolError("it")
    (taken,) = there.spans
    assert headers == {"traceparent": f"00-{taken.trace}-{taken.id}-01"}
    assert taken.failed
    assert not taken.parent


def test_an_environment_without_a_collector_has_no_spans() -> None:
    assert spans_of("me", {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}) is None
