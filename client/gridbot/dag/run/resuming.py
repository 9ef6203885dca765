"""Replay of a journal: what the engine knew, what waits for its time, the jobs at the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gridbot.dag import journal
from gridbot.dag.engine import actions, events
from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.run.inbox import Inbox
from gridbot.dag.run.inner import PAUSED
from gridbot.dag.run.lots import NodeLots
from gridbot.dag.run.record import RunReports
from gridbot.dag.run.shapes import destination_of
from gridbot.dag.run.submitting import Submitting


class Resumed:
    """Restores a run; `has_rescue` is whether it has said that a rescue file is to be written."""

    def __init__(
        self, engine: DagEngine, record: RunReports, inbox: Inbox, submitting: Submitting
    ) -> None:
        self._engine, self._record = engine, record
        self._inbox, self._submitting = inbox, submitting
        self._lots: NodeLots | None = None
        self.has_rescue = False

    def replay(
        self, documents: Sequence[journal.Document], at_server: Callable[[], NodeLots]
    ) -> None:
        """Let the engine take what happened.  The server is asked for nothing."""
        dag_id = documents[0]["cluster"]
        starts = 0
        for document in documents[1:]:
            at = document["at"]
            if document["event"] == "process":
                self._record.internal(at, f"DAGMAN_STARTED {dag_id}.0")
                if starts:
                    self._record.internal(at, "RECOVERY_STARTED")
                    self._record.internal(at, "RECOVERY_FINISHED")
                starts += 1
            elif document["event"] == "paused":
                self._record.internal(at, f"DAGMAN_FINISHED {PAUSED}")
            else:
                self._take(events.event_of(document), document, at_server)

    def _take(
        self, event: events.RunEvent, document: journal.Document, at_server: Callable[[], NodeLots]
    ) -> None:
        at = document["at"]
        if isinstance(event, events.NodeSubmitted):
            self._submitting.knows_cluster(event.cluster)
            if event.bot:
                self._lots = at_server()
                lot = self._lots.remember(event.bot, document["number"])
                to = [destination_of(item) for item in document["to"]]
                self._lots.expect(lot, event.node, event.first, to)
        elif isinstance(event, events.JobEnded | events.JobRemoved) and self._lots:
            self._lots.forget(event)
        elif isinstance(event, events.Due):
            self._inbox.forget(event.node, event.kind)
        done = self._engine.apply(event)
        self._record.tell(event, done, at)
        for action in done:
            if isinstance(action, actions.Wait):
                self._inbox.remind(at + action.seconds, action.node, action.kind)
        self.has_rescue |= actions.WriteRescue() in done
