"""One run of a flow: a loop that journals what happens, asks the engine, and does what it says."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gridbot.api.errors import BadInput, GridbotError, Refused
from gridbot.api.inputs import InputFile, JobInputs, split
from gridbot.api.results import OutputFile, Result
from gridbot.api.session import Session
from gridbot.api.submission import Submission, prepare
from gridbot.dag import journal
from gridbot.dag.engine import actions, events
from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.engine.table import NodeStatus
from gridbot.dag.language.model import Dag
from gridbot.dag.run.inbox import Inbox
from gridbot.dag.run.lot import JobAtServer, NodeLot
from gridbot.dag.run.lots import NodeLots
from gridbot.flow.feeding import FlowJob, StepFeed
from gridbot.flow.steps import Step
from gridbot_client.protocol.messages import INLINE_OUTPUT_BYTES, Scalar

log = logging.getLogger(__name__)

# Calls what the user wants called with a result; returns the steps that this has added.
Declaring = Callable[[Step, int], Sequence[Step]]


class _Nowhere:
    """Outputs stay at the server."""

    def path(self, output: str) -> Path | None:  # noqa: ARG002 - of the interface
        """None of them is wanted here."""
        return None


@dataclass(frozen=True)
class _Appended:
    """A job with all that the server is told of it."""

    values: Mapping[str, Scalar]
    files: Sequence[InputFile]
    destination: _Nowhere = field(default_factory=_Nowhere)


@dataclass(frozen=True)
class _Append:
    """Jobs of a step on their way to the server."""

    lot: NodeLot
    first: int
    jobs: Sequence[_Appended]


class FlowRun:
    """A run that may have begun in another process."""

    def __init__(
        self, name: str, session: Session, steps: Mapping[str, Step], declaring: Declaring
    ) -> None:
        self._name, self._session = name, session
        self._steps, self._declaring = steps, declaring
        self._path = Path(f"{name}.flow.journal")
        self._inbox = Inbox()
        self.engine = DagEngine(Dag((), {}))
        self._feeds: dict[str, StepFeed] = {}
        self._over: dict[str, list[StepFeed]] = {}  # those over the outputs of a step
        self._outputs: dict[tuple[str, int], Mapping[str, OutputFile]] = {}  # that came just now
        self._changed: dict[str, StepFeed] = {}
        # From which process on jobs of a step are from which number on of which BOT.
        self._places: dict[str, list[tuple[int, int, int]]] = {}

    def execute(self) -> None:
        """Run to the end.  Raises GridbotError."""
        for step in self._steps.values():
            _check(step)
        self._journal = journal.RunJournal(self._path)
        try:
            self._execute()
        except BaseException:
            self._lots.pause()
            self._journal.close()
            raise

    def _execute(self) -> None:
        documents = self._journal.documents
        run = documents[0]["run"] if documents else secrets.token_hex(8)
        self._lots = NodeLots(
            self._session, run, self._name, self._inbox.put, log.warning, self._keep
        )
        if not documents:
            header = {"journal": journal.VERSION, "run": run, "flow": self._name}
            self._journal.append([{**header, "at": time.time()}])
        self._replay(documents[1:])
        if not self.engine.is_over:
            self._loop(has_begun=any(item["event"] == "began" for item in documents[1:]))
        self._finish()

    def _loop(self, has_begun: bool) -> None:
        outstanding = [*self.engine.outstanding()]
        known = self.engine.table.nodes
        happened: list[events.RunEvent] = [
            _added(step) for step in self._steps.values() if step.name not in known
        ]
        if not has_begun:
            happened.append(events.Began())
        self._send_again()
        self._carry_out([*outstanding, *self._decide(happened)])
        halt_file = Path(f"{self._name}.flow.halt")
        while not self.engine.is_over:
            told = self._inbox.wait(halt_file, self.engine.is_halted)
            self._carry_out(self._decide(told))

    def _finish(self) -> None:
        self._lots.stop(cancel=False)
        for step in self._steps.values():
            if step.status is NodeStatus.ERROR and step.failed:
                step.details = self._why(step)
        self._journal.keep(Path(f"{self._name}.flow.log"))

    def _why(self, step: Step) -> str:
        """Why a step has failed, by its first job that did."""
        number = min(step.failed)
        result = step.failed[number]
        ended = f"exit code {result.exit_code}" if result.exit_code is not None else result.reason
        said = ""
        try:
            bot, seq = self._place(step.name, number)
            lines = [*self._session.bot(bot).logs(seq)]
            said = (str(lines[-1].get("stderr") or "").strip().splitlines() or [""])[-1]
        except GridbotError:
            pass  # its logs are gone
        others = f", and {len(step.failed) - 1} more" if len(step.failed) > 1 else ""
        return f"job {number} failed: {ended}{': ' if said else ''}{said}{others}"

    # --- after a crash

    def _replay(self, documents: Iterable[journal.Document]) -> None:
        """Let engine and feeds take what happened."""
        for document in documents:
            event = events.event_of(document)
            for added in document.get("adds", ()):
                self.engine.apply(events.event_of(added))
            match event:
                case events.NodeSubmitted() | events.JobsAdded() if event.bot:
                    self._expect(event, document)
                case events.JobEnded() | events.JobRemoved():
                    self._lots.forget(event.node, event.process, event.seen)
                    self._take(event)
                case events.Due():
                    self._inbox.forget(event.node, event.kind)
                case _:
                    pass
            self._remind(self.engine.apply(event), document["at"])
        self._tell_steps()

    def _remind(self, decided: Iterable[actions.Action], at: float) -> None:
        for action in decided:
            if isinstance(action, actions.Wait):
                self._inbox.remind(at + action.seconds, action.node, action.kind)

    def _expect(
        self, event: events.NodeSubmitted | events.JobsAdded, document: journal.Document
    ) -> None:
        step = self._steps.get(event.node)
        if step is None or step.key != event.bot:
            raise GridbotError(
                f"step {event.node} has changed since this flow began, which is not over; put it"
                f" back, or begin anew: rm {self._path}"
            )
        feed = self._feed(step)
        process = len(feed.taken)
        jobs = feed.take(event.jobs)
        lot = self._lots.remember(event.bot, document["number"])
        self._lots.expect(lot, step.name, event.first, [_Nowhere() for _ in jobs], process)
        self._places.setdefault(step.name, []).append((process, event.first, lot.bot.id))

    def _send_again(self) -> None:
        """Append the jobs again that were journaled, and did not reach the server."""
        for lot in self._lots.known():
            for seq in self._lots.missing(lot):
                job = lot.jobs[seq]
                feed = self._feeds[job.node]
                self._lots.append(lot, seq, [self._appended(feed.step, feed.taken[job.process])])
            if lot.jobs:
                self._lots.follow(lot)

    # --- the loop

    def _decide(self, happened: Iterable[events.RunEvent]) -> list[actions.Action]:
        """Journal events; return what follows from them."""
        documents, to_apply = [], list[events.RunEvent]()
        at = time.time()
        for told in happened:
            added = list[events.RunEvent]()
            event = told
            if isinstance(event, events.JobEnded | events.JobRemoved):
                event, steps = self._take(event)
                added = [_added(step) for step in steps]
            more = {"adds": [item.document() for item in added]} if added else {}
            documents.append({**event.document(), **self._where(event), **more, "at": at})
            to_apply += [*added, event]
        if documents:
            self._journal.append(documents)
        decided = [action for event in to_apply for action in self.engine.apply(event)]
        self._remind(decided, at)
        self._tell_steps()
        return decided

    def _where(self, event: events.RunEvent) -> Mapping[str, Any]:
        if isinstance(event, events.NodeSubmitted | events.JobsAdded) and event.bot:
            return {"number": self._lots.lot(event.bot, dict).bot.id}
        return {}

    def _carry_out(self, to_do: Sequence[actions.Action]) -> None:
        """Act, and let the engine decide about what follows, until nothing is left to do."""
        while True:
            happened, appends = list[events.RunEvent](), list[_Append]()
            for action in to_do:
                match action:
                    case actions.SubmitNode(node=node) if node in self._steps:
                        self._begin(self._steps[node], happened, appends)
                    case actions.CancelJobs(node=node, processes=processes):
                        self._lots.cancel(node, processes)
                    case _:
                        pass
            self._feed_open(happened, appends)
            if not happened:
                return
            decided = self._decide(happened)
            to_do = [*decided, *self._decide(self._send(appends))]

    def _begin(self, step: Step, happened: list[events.RunEvent], appends: list[_Append]) -> None:
        feed = self._feed(step)
        try:
            key = step.key
            lot = self._lots.lot(key, lambda: step.submission)
            first = self._reserve(lot, feed, appends)
        except GridbotError as error:
            is_final = isinstance(error, BadInput | Refused)
            happened.append(events.SubmitFailed(step.name, str(error), is_final))
            return
        happened.append(
            events.NodeSubmitted(
                step.name, 1, len(feed.taken), key, first, is_open=step.source is not None
            )
        )
        self._changed[step.name] = feed

    def _reserve(self, lot: NodeLot, feed: StepFeed, appends: list[_Append]) -> int:
        process, step = len(feed.taken), feed.step
        jobs = [self._appended(step, job) for job in feed.take(feed.due)]
        first = self._lots.reserve(lot, step.name, jobs, process)
        self._places.setdefault(step.name, []).append((process, first, lot.bot.id))
        if jobs:
            appends.append(_Append(lot, first, jobs))
        return first

    def _feed_open(self, happened: list[events.RunEvent], appends: list[_Append]) -> None:
        """Give open steps the jobs that are due, and close those whose source has ended."""
        changed, self._changed = self._changed, {}
        for name, feed in changed.items():
            state, source = self.engine.table.nodes[name], feed.step.source
            if source is None or not state.is_open:
                continue
            if feed.due:
                lot, before = self._lots.lot(feed.step.key, dict), len(feed.taken)
                first = self._reserve(lot, feed, appends)
                count = len(feed.taken) - before
                happened.append(events.JobsAdded(name, count, feed.step.key, first))
            if source.step.has_ended:
                is_whole = source.step.status is NodeStatus.DONE
                reason = (
                    "" if is_whole else f"step {source.step.name}, whose outputs it reads, failed"
                )
                happened.append(events.NodeClosed(name, reason))

    def _send(self, appends: Iterable[_Append]) -> list[events.RunEvent]:
        """Let jobs begin that are journaled: of one BOT in one request.

        Returns the ends of those that the server refused.
        """
        together: dict[NodeLot, tuple[int, list[_Appended]]] = {}
        for item in appends:
            together.setdefault(item.lot, (item.first, []))[1].extend(item.jobs)
        refused = list[events.RunEvent]()
        for lot, (first, jobs) in together.items():
            try:
                self._lots.append(lot, first, jobs)
            except GridbotError as error:
                log.warning("BOT %d: %s", lot.bot.id, error)
                refused += self._lots.lose_from(lot, first, str(error))
        return refused

    def _appended(self, step: Step, job: FlowJob) -> _Appended:
        if lacking := sorted(step.named - job.row.keys()):
            raise BadInput(f"{step.name}: its jobs have no value for {{{lacking[0]}}}")
        _, stored = split(job.stored)
        values = {name: job.row[name] for name in step.named}
        return _Appended(values, [*_own_files(step, job.row), *stored])

    # --- results

    def _place(self, node: str, process: int) -> tuple[int, int]:
        """BOT and number of a job."""
        places = self._places[node]
        start, first, bot = next(place for place in reversed(places) if place[0] <= process)
        return bot, first + process - start

    def _keep(self, _: NodeLot, result: Result, job: JobAtServer) -> Mapping[str, Any]:
        """What the journal knows of a job's result; called by threads."""
        self._outputs[job.node, job.process] = result.outputs
        return {
            "state": result.state,
            "reason": result.reason,
            "files": {name: [file.sha256, file.size] for name, file in result.outputs.items()},
        }

    def _take(
        self, event: events.JobEnded | events.JobRemoved
    ) -> tuple[events.RunEvent, Sequence[Step]]:
        """Let steps know of a job's end: what the engine is told, and the steps that this adds."""
        step = self._steps[event.node]
        outputs = self._outputs.pop((event.node, event.process), None)
        result = self._result(step, event, outputs)
        if not step.is_good(result):
            step.failed[event.process] = result
            if isinstance(event, events.JobEnded) and not event.code:
                event = replace(event, code=1)
            return event, ()
        step.known[event.process] = result
        if isinstance(event, events.JobEnded):
            event = replace(event, code=0)
        for feed in self._over.get(step.name, ()):
            feed.see(result)
            self._changed[feed.step.name] = feed
        return event, self._declaring(step, event.process)

    def _result(
        self, step: Step, event: events.JobEnded | events.JobRemoved,
        outputs: Mapping[str, OutputFile] | None,
    ) -> Result:  # fmt: skip
        kept = event.outputs if isinstance(event, events.JobEnded) else {}
        bot, seq = self._place(step.name, event.process)
        if outputs is None:
            outputs = {
                name: OutputFile(
                    name, sha256, size, f"/bots/{bot}/outputs/{seq}/{quote(name)}",
                    self._session.connection, came_inline=size <= INLINE_OUTPUT_BYTES,
                )
                for name, (sha256, size) in kept.get("files", {}).items()
            }  # fmt: skip
        removed = event.reason if isinstance(event, events.JobRemoved) else ""
        return Result(
            n=event.seen,
            seq=event.process,
            args=self._feeds[step.name].taken[event.process].row,
            state=kept.get("state", "failed"),
            replica=None,
            exit_code=event.code if isinstance(event, events.JobEnded) else None,
            reason=removed or kept.get("reason", ""),
            host="", cpu_seconds=0.0, wall_seconds=0.0,
            outputs=outputs,
            bot=bot,
        )  # fmt: skip

    def _feed(self, step: Step) -> StepFeed:
        if step.name not in self._feeds:
            feed = self._feeds[step.name] = StepFeed(step)
            if step.source is not None:
                source = step.source.step
                self._over.setdefault(source.name, []).append(feed)
                for result in source.known.values():
                    feed.see(result)
        return self._feeds[step.name]

    def _tell_steps(self) -> None:
        """Let steps know how they are."""
        for step in self._steps.values():
            state = self.engine.table.nodes.get(step.name)
            if state is None or (state.status is step.status and state.jobs == step.jobs):
                continue
            had_ended = step.has_ended
            step.status, step.details, step.jobs = state.status, state.details, state.jobs
            if step.has_ended and not had_ended:
                for feed in self._over.get(step.name, ()):
                    self._changed[feed.step.name] = feed


def _added(step: Step) -> events.NodeAdded:
    most, is_share = step.tolerance
    return events.NodeAdded(step.name, [one.name for one in step.waits_for], most, is_share)


def _check(step: Step) -> None:
    """Refuse what cannot be submitted, before anything begins.  Raises BadInput."""
    prepare(Submission(**step.submission))
    for row in step.rows:
        _own_files(step, row)


def _own_files(step: Step, row: Mapping[str, Scalar]) -> list[InputFile]:
    """Files of this machine that a job has for itself."""
    found = JobInputs(step.own_files, Path(step.submission.get("base") or Path()))
    for _ in found.of(row):
        pass
    return [*found.files.values()]
