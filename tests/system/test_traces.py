"""A BOT that is submitted in a trace is one trace, made by all the processes that work on it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.collector import Collector, Taken, collector
from tests.system.deployment import NO_COPIES, Deployment, deployment, eventually

from gridbot_client.spans import TIMEOUT

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE, SPAN = CALLER.split("-")[1:3]
TRACED_JOBS = 2
SECRET = "hunter2-of-the-owner"


@pytest.fixture(scope="module")
def there() -> Iterator[Collector]:
    with collector() as made:
        yield made


@pytest.fixture(scope="module")
def traced(there: Collector) -> Iterator[Deployment]:
    with deployment() as made:
        made.configure(otlp_endpoint=there.url, traced_jobs=TRACED_JOBS, web_workers=2)
        made.env[TIMEOUT] = "300"  # a busy machine has its time to send spans
        made.start()
        made.client(
            "one", "--cpus", "2", env={**made.env, "OTEL_EXPORTER_OTLP_ENDPOINT": there.url}
        )
        yield made


def of_bot(there: Collector, bot: int, name: str) -> dict[tuple[int, int], Taken]:
    return {
        span.replica: span for span in there.named(name) if span.attributes["gridbot.bot"] == bot
    }


def all_told(there: Collector, bot: int, name: str, count: int) -> None:
    eventually(lambda: len(of_bot(there, bot, name)) == count, what=name)


def received_of(there: Collector, bot: int) -> Taken:
    """The server's span of a submission: that of another process, which may come last."""

    def found() -> list[Taken]:
        made = there.named("submission")
        return [span for span in made if span.attributes["gridbot.bot"] == bot]

    eventually(lambda: bool(found()), what="the server's span of the submission")
    (received,) = found()
    return received


def submit(server: Deployment, *arguments: str, **variables: str) -> int:
    server.file("policy.ad", NO_COPIES)
    options = ["--policy", str(server.folder / "policy.ad"), *arguments]
    done = server._run("submit", "--json", *options, env={**server.env, **variables})
    assert done.returncode == 0, done.stderr
    return int(json.loads(done.stdout)["id"])


def test_submission_lease_run_report_and_verdict_are_one_trace(
    traced: Deployment, there: Collector
) -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": there.url, "TRACEPARENT": CALLER}
    bot = submit(
        traced, "--attempts", "1", "--range", "0:3", "--", "echo", SECRET, "{}", **endpoint
    )
    traced.wait(bot)
    for kind in ("queued", "leased", "run", "reported"):
        all_told(there, bot, kind, TRACED_JOBS)
    (submitted,) = (span for span in there.named("gridbot submit") if span.parent == SPAN)
    received = received_of(there, bot)
    assert received.parent == submitted.id
    assert submitted.start <= received.start <= received.end <= submitted.end
    replicas = {(job, 1) for job in range(TRACED_JOBS)}
    told = {name: of_bot(there, bot, name) for name in ("queued", "leased", "run", "reported")}
    assert all(set(found) == replicas for found in told.values())
    everything = [
        submitted,
        received,
        *(span for found in told.values() for span in found.values()),
    ]
    assert {span.trace for span in everything} == {TRACE}
    assert len({span.id for span in everything}) == len(everything)
    for name in replicas:
        queued, leased, run, reported = (told[kind][name] for kind in told)
        assert queued.parent == received.id
        assert leased.parent == queued.id
        assert run.parent == reported.parent == leased.id
        assert received.start <= queued.start <= queued.end == leased.start
        assert leased.start <= run.start <= run.end <= leased.end == reported.start
        assert reported.start <= reported.end
        assert (
            leased.attributes["gridbot.outcome"] == run.attributes["gridbot.outcome"] == "success"
        )
        assert reported.attributes["gridbot.valid"] is True
        assert not any(span.failed for span in (queued, leased, run, reported))
    services = {span.service for span in everything}
    assert services == {"gridbot submit", "gridbot server", "gridbot client"}
    assert not any(SECRET.encode() in body for body in there.bodies)
    assert not any(traced.operator_key.encode() in body for body in there.bodies)


def test_failures_beyond_the_first_jobs_are_told_too_and_no_more_than_these(
    traced: Deployment, there: Collector
) -> None:
    bot = submit(
        traced, "--attempts", "1", "--range", "0:8", "--", "sh", "-c", "exit 3", TRACEPARENT=CALLER
    )  # fmt: skip
    traced.wait(bot)
    first = {(0, 1), (1, 1)}
    all_told(there, bot, "reported", 2 * TRACED_JOBS)
    received = received_of(there, bot)
    assert received.parent == SPAN  # without a collector of its own, the command hands it on
    all_told(there, bot, "leased", 2 * TRACED_JOBS)
    leased, reported = of_bot(there, bot, "leased"), of_bot(there, bot, "reported")
    assert set(leased) == set(reported) > first
    assert all(span.failed for span in (*leased.values(), *reported.values()))
    assert {leased[name].parent for name in set(leased) - first} == {received.id}
    assert all(reported[name].parent == leased[name].id for name in leased)


@pytest.mark.parametrize("given", [{}, {"TRACEPARENT": "00-0-0-01"}])
def test_a_bot_without_a_good_trace_has_none(
    traced: Deployment, there: Collector, given: dict[str, str]
) -> None:
    bot = submit(traced, "--", "true", **given)
    traced.wait(bot)
    assert traced.rows("SELECT trace FROM bot WHERE id = %s", bot) == [(None,)]
    other = submit(traced, "--", "true", TRACEPARENT=CALLER)
    eventually(lambda: of_bot(there, other, "reported"), what="the next BOT's verdict")
    assert not [span for span in there.spans if span.attributes.get("gridbot.bot") == bot]
