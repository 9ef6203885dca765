"""Traces of BOTs that were submitted in one, for an OpenTelemetry collector.

Spans tell how a BOT was submitted, and of each replica how long it was queued, leased, and reported
but not judged.  Each is sent by the process that ends what it tells of, once that is committed.  A
BOT has spans of its first jobs, and of some replicas of others that were found wrong: their number
does not grow with the BOT.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from gridbot_client.protocol.messages import ReplicaId
from gridbot_client.protocol.traces import Trace, TracedBot, read_traceparent
from gridbot_client.spans import Spans, TraceSpan, is_available
from gridbot_server import metrics
from gridbot_server.settings import Settings, SettingsError
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode, fetch

SQL = sql.load("traces.sql")

_MOST_KNOWN = 10_000  # BOTs of which a process remembers the trace
_ENDED_BY_HOSTS = ("success", "error")
_REASON_LENGTH = 100  # characters: hosts say it


class _Bot(NamedTuple):
    """The trace of a BOT as the database has it."""

    bot: int
    trace: bytes | None
    jobs: int


class _Sent(NamedTuple):
    """A replica that is leased; times are s since 1970."""

    bot: int
    seq: int
    replica: int
    why: str
    grid: str
    queued_at: float
    sent_at: float


class _Ended(NamedTuple):
    """A replica that has ended; times are s since 1970."""

    bot: int
    seq: int
    replica: int
    how: str
    reason: str
    valid: bool
    grid: str
    sent_at: float
    ended_at: float
    now: float


class TracedSubmission(NamedTuple):
    """A submission in somebody's trace, and that of the BOT that it makes."""

    caller: Trace
    bot: TracedBot
    began_at: float  # s since 1970


class Tracing:
    """Where the spans of one process go, and of how many jobs of a BOT there are any."""

    def __init__(self, endpoint: str, jobs: int) -> None:
        self.jobs = jobs
        self._spans = Spans("gridbot server", endpoint, _count)

    @classmethod
    def of(cls, settings: Settings) -> Tracing | None:
        """Return it; None if there is no collector.  Raises SettingsError without the extra."""
        if settings.otlp_endpoint is None:
            return None
        if not is_available():
            raise SettingsError("otlp_endpoint needs OpenTelemetry: pip install 'gridbot[otel]'")
        return cls(settings.otlp_endpoint, settings.traced_jobs)

    def begin(self, traceparent: str | None, now: float) -> TracedSubmission | None:
        """Begin a submission whose request has this header; None if it is in no trace."""
        caller = read_traceparent(traceparent)
        if caller is None:
            return None
        ours = Trace(caller.id, secrets.token_bytes(8))
        return TracedSubmission(caller, TracedBot(ours, self.jobs), now)

    def submitted(self, bot: int, submission: TracedSubmission, now: float) -> None:
        """Tell of a submission that has made a BOT."""
        trace = submission.bot.trace
        span = TraceSpan(
            name="submission", trace=trace.id, id=trace.span, parent=submission.caller.span,
            start=submission.began_at, end=now, attributes={"gridbot.bot": bot}, kind="SERVER",
        )  # fmt: skip
        self.send([span])

    def send(self, spans: Sequence[TraceSpan]) -> None:
        """Send spans of what is committed; never waits."""
        self._spans.add(spans)

    def close(self) -> None:
        """Send what is not sent yet, for a moment."""
        self._spans.close()


class TracedReplicas:
    """Spans of replicas; for one thread.  What a transaction notes is sent once it is committed."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._bots = dict[int, TracedBot | None]()
        self._wrong = Counter[int]()  # replicas beyond the first jobs that were told, by BOT
        self._noted = list[TraceSpan]()

    def note_sent(self, conn: Connection, replicas: Iterable[ReplicaId]) -> None:
        """Note replicas that have just got a lease."""
        wanted = self._traced(conn, replicas)
        for item in fetch(conn, _Sent, SQL["sent"], _listed(wanted)) if wanted else ():
            trace = self._trace(item.bot)
            self._noted.append(
                _span(
                    "queued", trace, item, trace.span, item.queued_at, item.sent_at,
                    why=item.why,
                )
            )  # fmt: skip

    def note_reported(self, conn: Connection, replicas: Iterable[ReplicaId]) -> None:
        """Note replicas whose leases have just ended by reports of their hosts."""
        wanted = self._traced(conn, replicas)
        for item in fetch(conn, _Ended, SQL["ended"], _listed(wanted)) if wanted else ():
            self._noted.append(self._leased(item))

    def note_judged(
        self, conn: Connection, right: Iterable[ReplicaId], wrong: Iterable[ReplicaId]
    ) -> None:
        """Note replicas that have just got their verdict."""
        others = self._few_others(conn, wrong := list(wrong))
        wanted = self._traced(conn, (*right, *wrong)) + others
        for item in fetch(conn, _Ended, SQL["ended"], _listed(wanted)) if wanted else ():
            if item.how not in _ENDED_BY_HOSTS or item.seq >= self._known(item.bot).jobs:
                self._noted.append(self._leased(item))  # no host did, or it was not known to matter
            trace = self._trace(item.bot)
            parent = trace.span_of("leased", item.seq, item.replica)
            self._noted.append(
                _span(
                    "reported", trace, item, parent, item.ended_at, item.now,
                    error=None if item.valid else item.reason or "wrong", valid=item.valid,
                )
            )  # fmt: skip

    def tell(self) -> None:
        """Send what was noted: it is committed."""
        noted, self._noted = self._noted, []
        self._tracing.send(noted)
        if len(self._bots) > _MOST_KNOWN:  # not before: what is noted together needs its BOTs
            self._bots.clear()
            self._wrong.clear()

    def forget(self) -> None:
        """Drop what was noted: it is rolled back."""
        self._noted = []

    def _leased(self, item: _Ended) -> TraceSpan:
        trace = self._trace(item.bot)
        is_first = item.seq < self._known(item.bot).jobs
        parent = trace.span_of("queued", item.seq, item.replica) if is_first else trace.span
        return _span(
            "leased", trace, item, parent, item.sent_at, item.ended_at,
            error=None if item.how == "success" else item.reason or item.how, outcome=item.how,
        )  # fmt: skip

    def _traced(self, conn: Connection, replicas: Iterable[ReplicaId]) -> list[ReplicaId]:
        """Those of the first jobs of BOTs that have a trace."""
        possible = [name for name in replicas if name.seq < self._tracing.jobs]
        self._learn(conn, {name.bot for name in possible})
        return [
            name
            for name in possible
            if (bot := self._bots[name.bot]) is not None and name.seq < bot.jobs
        ]

    def _few_others(self, conn: Connection, wrong: Iterable[ReplicaId]) -> list[ReplicaId]:
        """Some of other jobs of BOTs that have a trace: no more of a BOT than it has first jobs."""
        possible = list(wrong)
        self._learn(conn, {name.bot for name in possible})
        found = []
        for name in possible:
            bot = self._bots[name.bot]
            if bot is None or name.seq < bot.jobs or self._wrong[name.bot] >= bot.jobs:
                continue
            self._wrong[name.bot] += 1
            found.append(name)
        return found

    def _learn(self, conn: Connection, bots: Collection[int]) -> None:
        if not (new := [bot for bot in bots if bot not in self._bots]):
            return
        self._bots.update(dict.fromkeys(new))
        for row in fetch(conn, _Bot, SQL["of_bots"], {"bots": new}):
            if row.trace is not None:
                self._bots[row.bot] = traced_bot(row.trace, row.jobs)

    def _known(self, bot: int) -> TracedBot:
        found = self._bots[bot]
        assert found is not None, "only replicas of BOTs with a trace are looked up"
        return found

    def _trace(self, bot: int) -> Trace:
        return self._known(bot).trace


def traced_bot(trace: bytes, jobs: int) -> TracedBot:
    """The trace of a BOT, from its columns `trace` and `traced_jobs`."""
    return TracedBot(Trace(trace[:16], trace[16:]), jobs)


def _count(sent: int, lost: int) -> None:
    metrics.SPANS_SENT.inc(sent)
    metrics.SPANS_LOST.inc(lost)


def _listed(replicas: Iterable[ReplicaId]) -> dict[str, object]:
    return {"replicas": encode([name._asdict() for name in replicas])}


def _span(
    name: str,
    trace: Trace,
    item: _Sent | _Ended,
    parent: bytes,
    start: float,
    end: float,
    *,
    error: str | None = None,
    **said: str | bool,
) -> TraceSpan:
    return TraceSpan(
        name=name,
        trace=trace.id,
        id=trace.span_of(name, item.seq, item.replica),
        parent=parent,
        start=start,
        end=end,
        attributes={
            "gridbot.bot": item.bot,
            "gridbot.job": item.seq,
            "gridbot.replica": item.replica,
            "gridbot.grid": item.grid,
            **{f"gridbot.{key}": value for key, value in said.items()},
        },
        error=error if error is None else error[:_REASON_LENGTH],
    )
