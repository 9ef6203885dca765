"""Tells a trace of how replicas ran on this machine, if its owner named a collector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gridbot_client.protocol.messages import Report
from gridbot_client.protocol.traces import TracedBot
from gridbot_client.spans import Spans, TraceSpan, spans_of


@dataclass(frozen=True, slots=True)
class RunSpans:
    """Spans of replicas; of jobs that the server has traced, and to the owner's own collector."""

    spans: Spans | None
    clock: Callable[[], float]  # seconds since 1970

    @classmethod
    def of(cls, environment: Mapping[str, str], clock: Callable[[], float]) -> RunSpans:
        """Return those of a client; without a collector or the extra nothing is told."""
        return cls(spans_of("gridbot client", environment), clock)

    def tell(self, bot: TracedBot | None, report: Report, began: float) -> None:
        """Tell of a replica that has ended now."""
        if self.spans is None or bot is None or report.id.seq >= bot.jobs:
            return
        name, trace = report.id, bot.trace
        run = TraceSpan(
            name="run",
            trace=trace.id,
            id=trace.span_of("run", name.seq, name.replica),
            parent=trace.span_of("leased", name.seq, name.replica),
            start=began,
            end=self.clock(),
            attributes={
                "gridbot.bot": name.bot,
                "gridbot.job": name.seq,
                "gridbot.replica": name.replica,
                "gridbot.outcome": report.how,
            },
            error=None if report.how == "success" else report.reason,
        )
        self.spans.add([run])

    def close(self) -> None:
        """Send what is not sent yet, for a moment."""
        if self.spans is not None:
            self.spans.close()
