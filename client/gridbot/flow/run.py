"""One run of a flow: a loop that journals what happens, asks the engine, and does what it says."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gridbot.api.errors import GridbotError
from gridbot.api.session import Session
from gridbot.api.submission import Submission, prepare
from gridbot.dag import journal
from gridbot.dag.engine import actions, events
from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.engine.table import NodeStatus
from gridbot.dag.journal import Happened
from gridbot.dag.language.model import Dag
from gridbot.dag.run.inbox import Inbox
from gridbot.dag.run.lots import NodeLots
from gridbot.dag.run.telling import ToldRun, WorkflowTeller
from gridbot.flow.results import StepResults
from gridbot.flow.sending import ChangedStep, StepBatch, StepJobs, own_files
from gridbot.flow.steps import Step
from gridbot_client.terminal import printable

log = logging.getLogger(__name__)

# Calls what the user wants called with a result; returns the steps that this has added.
Declaring = Callable[[Step, int], Sequence[Step]]


class FlowRun:
    """A run that may have begun in another process.

    Raises BadInput for steps that cannot be, before anything begins, and GridbotError if another
    process runs the flow.
    """

    def __init__(
        self, name: str, session: Session, steps: Mapping[str, Step], declaring: Declaring
    ) -> None:
        for step in steps.values():
            _check(step)
        self._name, self._steps, self._declaring = name, steps, declaring
        self._path = Path(f"{name}.flow.journal")
        self._journal = journal.RunJournal(self._path)
        self._header, *self._documents = self._journal.documents or [
            {
                "journal": journal.VERSION,
                "run": secrets.token_hex(8),
                "flow": name,
                "at": time.time(),
            }
        ]
        self._inbox = Inbox()
        self._results = StepResults(session)
        self._lots = NodeLots(
            session, self._header["run"], name, self._inbox.put, log.warning, self._results.keep
        )
        self.engine = DagEngine(Dag((), {}))
        self._jobs = StepJobs(self._lots, self.engine.table)
        told = ToldRun("flow", name, self._header["at"], self.engine, self._lots)
        self._teller = WorkflowTeller(told, session.connection, log.info)

    def execute(self) -> None:
        """Run to the end.  Raises GridbotError."""
        try:
            if not self._journal.documents:
                self._journal.append([self._header])
            self._replay(self._documents)
            if not self.engine.is_over:
                self._loop(has_begun=any(item["event"] == "began" for item in self._documents))
            self._finish()
        except BaseException:
            self._lots.pause()
            self._journal.close()
            self._teller.end("interrupted")
            raise

    def _loop(self, has_begun: bool) -> None:
        outstanding = [*self.engine.outstanding()]
        known = self.engine.table.nodes
        happened = [
            *self._jobs.resume(),
            *(_added(step) for step in self._steps.values() if step.name not in known),
            *([] if has_begun else [events.Began()]),
        ]
        self._carry_out([*outstanding, *self._decide(map(Happened, happened))])
        halt_file = Path(f"{self._name}.flow.halt")
        while not self.engine.is_over:
            told = self._inbox.wait(halt_file, self.engine.is_halted)
            self._carry_out(self._decide(map(Happened, told)))
            self._teller.look(bool(told))

    def _finish(self) -> None:
        self._lots.stop(cancel=False)
        for step in self._steps.values():
            if step.status is NodeStatus.ERROR and step.failed:
                number = min(step.failed)
                place = self._jobs.place(step.name, number)
                step.details = self._results.why(step, number, place)
        self._journal.keep(Path(f"{self._name}.flow.log"))
        self._teller.end("failed" if self.engine.exit_code else "done")

    # --- after a crash

    def _replay(self, documents: Iterable[journal.Document]) -> None:
        """Let engine and steps take what happened.  Raises GridbotError if a step has changed."""
        added = list[events.NodeAdded]()
        for document in documents:
            told = [events.event_of(item) for item in (*document.get("adds", ()), document)]
            for event in told:
                match event:
                    case events.NodeAdded():
                        added.append(event)
                    case events.NodeSubmitted() | events.JobsAdded():
                        self._expect(event, document)
                    case events.JobEnded() | events.JobRemoved():
                        self._lots.forget(event)
                        self._take(event)
                    case events.Due():
                        self._inbox.forget(event.node, event.kind)
                    case _:
                        pass
                self._remind(self.engine.apply(event), document["at"])
        for event in added:
            self._refuse_other(event)
        self._tell_steps()

    def _remind(self, decided: Iterable[actions.Action], at: float) -> None:
        for action in decided:
            if isinstance(action, actions.Wait):
                self._inbox.remind(at + action.seconds, action.node, action.kind)

    def _expect(
        self, event: events.NodeSubmitted | events.JobsAdded, document: journal.Document
    ) -> None:
        if event.node not in self._steps:
            raise self._changed(event.node, "it is gone")
        try:
            self._jobs.expect(self._steps[event.node], event, document)
        except ChangedStep as error:
            raise self._changed(event.node, str(error)) from None

    def _refuse_other(self, was: events.NodeAdded) -> None:
        """Refuse a step that the graph had otherwise, also if it has not begun."""
        step = self._steps.get(was.node)
        if step is None:
            raise self._changed(was.node, "it is gone")
        now = _added(step)
        if now.parents != was.parents:
            names = ", ".join(was.parents) or "no other step"
            raise self._changed(was.node, f"it came after {names}")
        if now != was:
            most = f"{was.tolerance:g}{'%' * was.tolerance_is_share}"
            raise self._changed(was.node, f"its max_failures was {most}")

    def _changed(self, node: str, how: str) -> GridbotError:
        return GridbotError(
            f"step {node} has changed since this flow began, which is not over: {how}; put it back,"
            f" or begin anew: rm {self._path}"
        )

    # --- the loop

    def _decide(self, happened: Iterable[Happened]) -> list[actions.Action]:
        """Journal events; return what follows from them."""
        documents, to_apply = [], list[events.RunEvent]()
        at = time.time()
        for told in happened:
            event, more, added = told.event, told.more, list[events.RunEvent]()
            if isinstance(event, events.JobEnded | events.JobRemoved):
                event, steps = self._take(event)
                added = [_added(step) for step in steps]
                if added:
                    more = {**more, "adds": [item.document() for item in added]}
            documents.append({**event.document(), **more, "at": at})
            to_apply += [*added, event]
        if documents:
            self._journal.append(documents)
        decided = [action for event in to_apply for action in self.engine.apply(event)]
        self._remind(decided, at)
        self._tell_steps()
        return decided

    def _carry_out(self, to_do: Sequence[actions.Action]) -> None:
        """Act, and let the engine decide about what follows, until nothing is left to do."""
        while True:
            batch = StepBatch()
            self._jobs.feed_open(batch)  # a step is open once its beginning is journaled
            for action in to_do:
                match action:
                    case actions.SubmitNode(node=node):
                        self._jobs.begin(self._steps[node], batch)
                    case actions.CancelJobs(node=node, processes=processes):
                        self._lots.cancel(node, processes)
                    case _:
                        pass
            if not batch.happened:
                return
            decided = self._decide(batch.happened)
            refused = self._lots.send(batch.appends)
            to_do = [*decided, *self._decide(map(Happened, refused))]

    # --- results

    def _take(
        self, event: events.JobEnded | events.JobRemoved
    ) -> tuple[events.RunEvent, Sequence[Step]]:
        """Let steps know of a job's end: what the engine is told, and the steps that this adds."""
        step = self._steps[event.node]
        row = self._jobs.row(event.node, event.process)
        place = self._jobs.place(event.node, event.process)
        result = self._results.result(event, row, place)
        if not step.is_good(result):
            step.failed[event.process] = result
            if isinstance(event, events.JobEnded) and not event.code:
                event = replace(event, code=1)
            return event, ()
        step.known[event.process] = result
        if isinstance(event, events.JobEnded):
            event = replace(event, code=0)
        self._jobs.see(step, result)
        return event, self._declaring(step, event.process)

    def _tell_steps(self) -> None:
        """Let steps know how they are."""
        for step in self._steps.values():
            state = self.engine.table.nodes.get(step.name)
            if state is None or (state.status is step.status and state.jobs == step.jobs):
                continue
            had_ended = step.has_ended
            step.status, step.jobs = state.status, state.jobs
            step.details = printable(state.details)
            if step.has_ended and not had_ended:
                self._jobs.has_ended(step)


def _added(step: Step) -> events.NodeAdded:
    most, is_share = step.tolerance
    return events.NodeAdded(step.name, [one.name for one in step.waits_for], most, is_share)


def _check(step: Step) -> None:
    """Refuse what cannot be submitted, before anything begins.  Raises BadInput."""
    prepare(Submission(**step.submission))
    for row in step.rows:
        own_files(step, row)
