"""Which jobs a step has, by what jobs before it returned.  Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gridbot.api.errors import BadInput
from gridbot.api.results import OutputFile, Result
from gridbot.dag.engine.table import NodeStatus
from gridbot.flow.steps import Gathered, Outputs, Step, row_of
from gridbot_client.protocol.messages import Scalar


@dataclass(frozen=True)
class FlowJob:
    """A job: its values, and its files that other jobs wrote."""

    row: Mapping[str, Scalar]
    stored: Sequence[OutputFile] = ()


class StepFeed:
    """The jobs of one step: those that were taken, in order, and those that are due."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.taken: list[FlowJob] = []
        self._due = deque(FlowJob(row) for row in step.rows)
        self._gathered: list[OutputFile] | None = None

    @property
    def due(self) -> int:
        """How many jobs may be taken."""
        return len(self._due)

    def see(self, result: Result) -> None:
        """A job of the step's source is done: what it wrote gives a job each."""
        assert self.step.source is not None
        source = self.step.source
        for file in source.of(result):
            self._due.append(FlowJob(row_of(source.step, result, file), (file,)))

    def take(self) -> list[FlowJob]:
        """Take the jobs that are due; the step has begun, so all that it gathers is there.

        Raises BadInput if nothing is.
        """
        if self._gathered is None:
            self._gathered = _together(self.step.gathered)
        jobs = [FlowJob(job.row, (*job.stored, *self._gathered)) for job in self._due]
        self._due.clear()
        self.taken += jobs
        return jobs

    @property
    def lack(self) -> str:
        """Why the step lacks jobs although its source has ended; empty if it lacks none."""
        assert self.step.source is not None
        source = self.step.source.step
        if source.status is not NodeStatus.DONE:
            return f"step {source.name}, whose outputs it reads, failed"
        if source.known and not self.taken and not self._due:
            return _no_match(self.step.source)
        return ""


def _together(gathered: Sequence[Gathered]) -> list[OutputFile]:
    """All files; where steps have some of the same name, these are below the names of the steps."""
    found = [(one.outputs.step.name, _files(one)) for one in gathered]
    count = Counter(file.name for _, files in found for file in files)
    return [
        file if count[file.name] == 1 else file.named(f"{name}/{file.name}")
        for name, files in found
        for file in files
    ]


def _files(gathered: Gathered) -> list[OutputFile]:
    if found := gathered.files():
        return found
    raise BadInput(_no_match(gathered.outputs))


def _no_match(chosen: Outputs) -> str:
    there = sorted({name for result in chosen.step.results for name in result.outputs})
    return (
        f"no output of step {chosen.step.name} matches {chosen.pattern!r};"
        f" there are: {', '.join(there[:10]) or 'none'}"
    )
