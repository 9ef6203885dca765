"""The jobs of steps on their way to the server: what each brings, and where it is there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gridbot.api.errors import BadInput, GridbotError, Refused
from gridbot.api.inputs import InputFile, JobInputs, split
from gridbot.api.results import Result
from gridbot.dag.engine import events
from gridbot.dag.engine.table import Table
from gridbot.dag.journal import Document, Happened
from gridbot.dag.run.lot import NodeLot
from gridbot.dag.run.lots import Append, NodeLots
from gridbot.flow.feeding import FlowJob, StepFeed
from gridbot.flow.steps import Step
from gridbot_client.protocol.messages import Scalar


class _Nowhere:
    """Outputs stay at the server."""

    def path(self, output: str) -> Path | None:  # noqa: ARG002 - of the interface
        """None of them is wanted here."""
        return None


@dataclass(frozen=True)
class _SentJob:
    """A job with all that the server is told of it."""

    values: Mapping[str, Scalar]
    files: Sequence[InputFile]
    destination: _Nowhere = field(default_factory=_Nowhere)


@dataclass
class StepBatch:
    """Jobs of steps that are sent together, once that is journaled."""

    happened: list[Happened] = field(default_factory=list)
    appends: list[Append] = field(default_factory=list)


class ChangedStep(GridbotError):
    """A step is not what the journal says that it was."""


class StepJobs:
    """The jobs of all steps: those that are due, and those that were sent."""

    def __init__(self, lots: NodeLots, table: Table) -> None:
        self._lots, self._table = lots, table
        self._feeds: dict[str, StepFeed] = {}
        self._over: dict[str, list[StepFeed]] = {}  # those over the outputs of a step
        self._changed: dict[str, StepFeed] = {}

    # --- what others ask, and tell

    def row(self, node: str, process: int) -> Mapping[str, Scalar]:
        """Values of a job."""
        return self._feeds[node].taken[process].row

    def place(self, node: str, process: int) -> tuple[int, int]:
        """BOT and number of a job."""
        found = self._lots.kept_for(node, process)
        assert found is not None, "all jobs of steps are for the server"
        return found

    def see(self, step: Step, result: Result) -> None:
        """A job is done: steps over its outputs have jobs for them."""
        for feed in self._over.get(step.name, ()):
            feed.see(result)
            self._changed[feed.step.name] = feed

    def has_ended(self, step: Step) -> None:
        """No job of a step is to come: those over its outputs may be closed."""
        for feed in self._over.get(step.name, ()):
            self._changed[feed.step.name] = feed

    # --- jobs that are due

    def begin(self, step: Step, batch: StepBatch) -> None:
        """The turn of a step has come: make its jobs, or tell that they cannot be."""
        feed = self._feed(step)
        try:
            lot = self._lots.lot(step.key, lambda: step.submission)
            first, count, more = self._reserve(lot, feed, batch)
        except GridbotError as error:
            is_final = isinstance(error, BadInput | Refused)
            batch.happened.append(Happened(events.SubmitFailed(step.name, str(error), is_final)))
            return
        is_open = step.source is not None
        event = events.NodeSubmitted(step.name, 1, count, lot.key, first, is_open)
        batch.happened.append(Happened(event, more))
        self._changed[step.name] = feed

    def feed_open(self, batch: StepBatch) -> None:
        """Give open steps the jobs that are due, and close those whose source has ended."""
        changed, self._changed = self._changed, {}
        for name, feed in changed.items():
            source = feed.step.source
            if source is None or not self._table.nodes[name].is_open:
                continue
            try:
                if feed.due:
                    lot = self._lots.lot(feed.step.key, dict)
                    first, count, more = self._reserve(lot, feed, batch)
                    event = events.JobsAdded(name, count, lot.key, first)
                    batch.happened.append(Happened(event, more))
            except GridbotError as error:
                batch.happened.append(Happened(events.NodeClosed(name, str(error))))
                continue
            if source.step.has_ended:
                batch.happened.append(Happened(events.NodeClosed(name, feed.lack)))

    def _reserve(self, lot: NodeLot, feed: StepFeed, batch: StepBatch) -> tuple[int, int, Document]:
        """Keep places for the jobs that are due.

        Returns the number of the first, how many there are, and what the journal keeps with them.
        """
        process, step = len(feed.taken), feed.step
        taken = feed.take()
        jobs = [_sent_job(step, job) for job in taken]
        first = self._lots.reserve(lot, step.name, jobs, process)
        if jobs:
            batch.appends.append(Append(lot, first, jobs))
        return first, len(jobs), {"number": lot.bot.id, "content": _hash_of(step, taken, jobs)}

    def _feed(self, step: Step) -> StepFeed:
        if step.name not in self._feeds:
            feed = self._feeds[step.name] = StepFeed(step)
            if step.source is not None:
                source = step.source.step
                self._over.setdefault(source.name, []).append(feed)
                for result in source.known.values():
                    feed.see(result)
        return self._feeds[step.name]

    # --- again, after a crash

    def expect(
        self, step: Step, event: events.NodeSubmitted | events.JobsAdded, document: Document
    ) -> None:
        """The journal tells of jobs that were sent.  Raises ChangedStep if they are others now."""
        feed = self._feed(step)
        if step.key != event.bot:
            raise ChangedStep("its command or an option has changed")
        if feed.due != event.jobs:
            raise ChangedStep(f"it has {feed.due} jobs where it had {event.jobs}")
        process = len(feed.taken)
        taken = feed.take()
        jobs = [_sent_job(step, job) for job in taken]
        if _hash_of(step, taken, jobs) != document.get("content"):
            raise ChangedStep(f"its {step.job_content} have changed")
        lot = self._lots.remember(event.bot, document["number"])
        self._lots.expect(lot, step.name, event.first, [_Nowhere() for _ in jobs], process)

    def resume(self) -> list[events.JobRemoved]:
        """Send the jobs that were journaled, and did not reach the server; as `NodeLots.resume`."""
        return self._lots.resume(self._made_again)

    def _made_again(self, _: NodeLot, node: str, processes: Sequence[int]) -> list[_SentJob]:
        feed = self._feeds[node]
        return [_sent_job(feed.step, feed.taken[process]) for process in processes]


def own_files(step: Step, row: Mapping[str, Scalar]) -> list[InputFile]:
    """Files of this machine that a job has for itself.  Raises BadInput."""
    found = JobInputs(step.own_files, Path(step.submission.get("base") or Path()))
    for _ in found.of(row):
        pass
    return [*found.files.values()]


def _sent_job(step: Step, job: FlowJob) -> _SentJob:
    _, stored = split(job.stored)
    values = {name: job.row[name] for name in step.named}
    return _SentJob(values, [*own_files(step, job.row), *stored])


def _hash_of(step: Step, taken: Iterable[FlowJob], sent: Iterable[_SentJob]) -> str:
    """By which jobs are known in another process."""
    found = hashlib.sha256()
    for job, told in zip(taken, sent, strict=True):
        files = [(file.ref.name, file.ref.sha256) for file in told.files]
        found.update(json.dumps(step.content_of(job.row, files), sort_keys=True).encode() + b"\n")
    return found.hexdigest()[:32]
