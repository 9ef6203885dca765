"""What a server counts for Prometheus: each process for itself, together when they are asked for.

The processes of one server share the folder that `PROMETHEUS_MULTIPROC_DIR` names, in which the
library keeps each one's values (`prometheus_client.multiprocess`).  No label names a BOT, a host or
a person: the number of series must not grow with what is computed.  `dashboard.json` shows them in
Grafana.  Traces, for OpenTelemetry, are in `traces.py`.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import partial
from importlib import resources
from itertools import groupby
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_SLOW = (0.1, 1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0)
_LAGS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0, 86400.0)


class BatchHistogram(Histogram):
    """A histogram that takes many values at the price of a few."""

    def observe_all(self, amounts: Iterable[float]) -> None:
        """Observe each of them."""
        if not (ordered := sorted(amounts)):
            return
        self._sum.inc(sum(ordered))
        for place, same in groupby(ordered, key=partial(bisect_left, self._upper_bounds)):
            self._buckets[place].inc(sum(1 for _ in same))


DISPATCHED = Counter("gridbot_replicas_dispatched", "Replicas sent to hosts.", ["grid"])
REPORTED = Counter(
    "gridbot_replicas_reported", "Replicas that hosts reported.", ["outcome", "reason"]
)
UNANSWERED = Counter(
    "gridbot_replicas_unanswered", "Replicas that ended without a report.", ["how"]
)
JOBS = Counter("gridbot_jobs_finished", "Jobs that got their outcome.", ["outcome"])
CPU = Counter("gridbot_cpu_seconds", "CPU time of the replicas that were reported.", ["grid"])

REQUESTS = Counter("gridbot_requests", "Requests that were answered.", ["class", "status"])
REQUEST_SECONDS = BatchHistogram(
    "gridbot_request_seconds", "From a request's arrival to its answer.", ["class"], buckets=_FAST
)
RECEIVED = Counter("gridbot_received_bytes", "Bodies of requests, as they announce it.", ["class"])
SENT = Counter("gridbot_sent_bytes", "Bodies of answers whose length is known.", ["class"])
EVICTIONS = Counter("gridbot_connection_evictions", "Idle connections closed to make room.")
SPANS_SENT = Counter("gridbot_spans_sent", "Spans that the collector of traces took.")
SPANS_LOST = Counter(
    "gridbot_spans_lost", "Spans that found the queue full, or that the collector did not take."
)
EVALUATIONS = Counter("gridbot_policy_evaluations", "BOTs whose policies were asked for a host.")

QUEUE_WAIT = BatchHistogram(
    "gridbot_queue_wait_seconds",
    "From a BOT's submission to the sending of a job's first copy.",
    buckets=_SLOW,
)
JOB_SECONDS = BatchHistogram(
    "gridbot_job_seconds", "Wall time of valid replicas, by their hosts' clocks.", buckets=_SLOW
)
VERDICT_LAG = BatchHistogram(
    "gridbot_verdict_lag_seconds", "From a replica's report to the verdict on it.", buckets=_LAGS
)

WORK_SECONDS = REQUEST_SECONDS.labels("work")
_WORK_RECEIVED, _WORK_SENT = RECEIVED.labels("work"), SENT.labels("work")
_WORK_ANSWERED = [REQUESTS.labels("work", f"{kind}xx") for kind in range(1, 6)]
_TELL_SECONDS = 0.1


class WorkTally:
    """Requests for work of one event loop, on their way into its process' metrics.

    The library takes a lock and writes into a file for each value: for one request that is more
    than to read it.
    """

    def __init__(self) -> None:
        self._told_at = 0.0
        self._received = self._sent = 0
        self._answered = [0] * len(_WORK_ANSWERED)  # by the first digit of the status, from 1 on

    def receive(self, size: int) -> None:
        """Count the body of a request, in bytes."""
        self._received += size

    def answer(self, status: int, size: int = 0) -> None:
        """Count an answer; the size of its body, in bytes."""
        self._answered[status // 100 - 1] += 1
        self._sent += size

    def tell(self, now: float) -> None:
        """Add the counts to the metrics, every 0.1 s at most; `now` is of a monotonic clock."""
        if now - self._told_at < _TELL_SECONDS or not (self._received or any(self._answered)):
            return
        self._told_at = now
        _WORK_RECEIVED.inc(self._received)
        _WORK_SENT.inc(self._sent)
        for metric, count in zip(_WORK_ANSWERED, self._answered, strict=True):
            if count:
                metric.inc(count)
        self._received = self._sent = 0
        self._answered = [0] * len(_WORK_ANSWERED)


_MOST_REASONS = 50  # of failures, which are what hosts say


class Reasons:
    """The reasons of failures that are labels: the first 50 of a process."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def label(self, reason: str) -> str:
        """Return the reason, or `other` beyond the first ones."""
        if len(self._known) < _MOST_REASONS:
            self._known.add(reason)
        return reason if reason in self._known else "other"


_reasons = Reasons()


def count_happenings(grid: str, happened: Mapping[str, Any]) -> None:
    """Count what the history notes of a grid."""
    for what, value in happened.items():
        if not isinstance(value, int | float) or value <= 0:
            continue
        match what:
            case "sent":
                DISPATCHED.labels(grid).inc(value)
            case "succeeded":
                REPORTED.labels("success", "").inc(value)
            case "cpu_seconds":
                CPU.labels(grid).inc(value)
            case "expired" | "relinquished" | "cancelled":
                UNANSWERED.labels(what).inc(value)
            case "done" | "failed":
                JOBS.labels(what).inc(value)
            case _:
                pass


def count_failures(reason: str, replicas: int) -> None:
    """Count replicas that were reported as failures, for a reason."""
    if replicas:
        REPORTED.labels("error", _reasons.label(reason)).inc(replicas)


def render() -> str:
    """Return what all processes of this server counted, in Prometheus' text form."""
    return generate_latest(_counted()).decode()


def _counted() -> CollectorRegistry:
    """What all processes of this server counted."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return REGISTRY
    counted = CollectorRegistry()
    MultiProcessCollector(counted, folder)  # type: ignore[no-untyped-call]
    return counted


def mean_request_seconds() -> float | None:
    """Return what a request for work took on average since the start; None before the first."""
    found = {"sum": 0.0, "count": 0.0}
    for family in _counted().collect():
        if family.name == "gridbot_request_seconds":
            for sample in family.samples:
                kind = sample.name.rpartition("_")[2]
                if sample.labels["class"] == "work" and kind in found:
                    found[kind] += sample.value
    return found["sum"] / found["count"] if found["count"] else None


def dashboard() -> str:
    """Return the dashboard for Grafana, as JSON."""
    return resources.files(__name__).joinpath("dashboard.json").read_text(encoding="utf-8")
