"""What a user declares: steps, and selections of what they return."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar

from gridbot.api.errors import BadInput
from gridbot.api.inputs import Input
from gridbot.api.items import ITEM, items_of, untyped
from gridbot.api.results import OutputFile, Result
from gridbot.api.specs import InputSpec, placeholders_in, specs_of
from gridbot.api.submission import Submission
from gridbot.api.units import most_failures
from gridbot.dag.engine.table import NodeStatus
from gridbot.dag.run.shapes import JOB_INPUTS
from gridbot_client.protocol.messages import Scalar

_OWN = ("command", "items", "inputs", "growing", "idempotency_key", "group", "max_failures")
FIELDS = {item.name for item in dataclasses.fields(Submission)} - {*_OWN}
_ENDED = (NodeStatus.DONE, NodeStatus.ERROR, NodeStatus.FUTILE)

OnResult = Callable[[Result], object]


@dataclasses.dataclass(frozen=True)
class Outputs:
    """The outputs of a step's jobs whose names match a pattern.

    As `items` of another step they give it one job each; as one of its `inputs` they are files of
    each of its jobs.
    """

    step: Step
    pattern: str

    def of(self, result: Result) -> list[OutputFile]:
        """Those of one job, by name."""
        names = sorted(name for name in result.outputs if fnmatchcase(name, self.pattern))
        return [result.outputs[name] for name in names]

    def files(self) -> list[OutputFile]:
        """Those of all jobs that are done; of the same name, each below its job's number."""
        found = [(result.seq, file) for result in self.step.results for file in self.of(result)]
        names = [file.name for _, file in found]
        if len(set(names)) == len(names):
            return [file for _, file in found]
        return [file.named(f"{job}/{file.name}") for job, file in found]


@dataclasses.dataclass(frozen=True)
class Gathered:
    """Outputs that each job of a step gets as files: under one name, below a folder, or as is."""

    outputs: Outputs
    place: str = ""

    def files(self) -> list[OutputFile]:
        """The files, as they are named there."""
        if self.place and not self.place.endswith("/"):
            return [file.named(self.place) for file in self.outputs.files()]
        return [file.named(f"{self.place}{file.name}") for file in self.outputs.files()]


@dataclasses.dataclass(frozen=True)
class OutputsByName:
    """`step.outputs["*.dat"]` selects outputs; `*` stands for anything."""

    step: Step

    def __getitem__(self, pattern: str) -> Outputs:
        """Select those whose names match."""
        return Outputs(self.step, pattern)


@dataclasses.dataclass(eq=False)
class Step:
    """Jobs of one command in a flow; made by `Flow.bot`."""

    name: str
    submission: Mapping[str, Any]  # fields that its BOT is submitted with
    rows: Sequence[Mapping[str, Scalar]] = ({},)  # of its jobs, unless they come from `source`
    columns: Sequence[
        str
    ] = ()  # names of the values of its jobs, as jobs over its outputs have them
    source: Outputs | None = None  # each is a job
    gathered: Sequence[Gathered] = ()  # files of each of its jobs
    after: Sequence[Step] = ()
    own_files: Sequence[InputSpec] = ()  # of single jobs, on this machine
    named: frozenset[str] = frozenset()  # values that each job has to have
    tolerance: tuple[float, bool] = (0, False)  # failed jobs that are borne; whether in percent
    callbacks: list[OnResult] = dataclasses.field(default_factory=list)
    known: dict[int, Result] = dataclasses.field(default_factory=dict)  # that are done, by job
    failed: dict[int, Result] = dataclasses.field(default_factory=dict)
    jobs: int = 0  # that it has until now
    status: NodeStatus = NodeStatus.NOT_READY
    details: str = ""  # why it has failed
    job_content: ClassVar[str] = "items or files of single jobs"  # what `content_of` is made of

    def __repr__(self) -> str:
        return f"<Step {self.name}: {self.status.name}>"

    @property
    def outputs(self) -> OutputsByName:
        """What its jobs return, for other steps: `outputs["*.dat"]`."""
        return OutputsByName(self)

    @property
    def results(self) -> list[Result]:
        """Results of its jobs that are done, in the order of the jobs; `seq` counts them from 0."""
        return [self.known[process] for process in sorted(self.known)]

    @property
    def key(self) -> str:
        """Names its BOT, the same in each process: steps that submit the same share one."""
        return hash_of(self.submission)

    def content_of(self, row: Mapping[str, Scalar], files: Sequence[tuple[str, str]]) -> object:
        """By what a job is known in another process: its values; names and hashes of its files."""
        return [row, files]

    def is_good(self, result: Result) -> bool:
        """Whether a result is what the step is for."""
        return result.state == "done"

    @property
    def has_ended(self) -> bool:
        """Whether no job of it is to come."""
        return self.status in _ENDED

    @property
    def waits_for(self) -> list[Step]:
        """Steps that have to be done before it begins."""
        found = [gathered.outputs.step for gathered in self.gathered]
        return list(dict.fromkeys([*found, *self.after]))

    @property
    def sources(self) -> list[Step]:
        """All steps that it takes something from, or comes after."""
        more = [self.source.step] if self.source else []
        return list(dict.fromkeys([*more, *self.waits_for]))

    def each(self, function: OnResult) -> OnResult:
        """Call a function with each result, as it comes: it may add steps to the flow.

        A decorator.  After a crash it is called again with the results that there were.
        """
        self.callbacks.append(function)
        return function


def hash_of(submission: Mapping[str, Any]) -> str:
    """Names what is submitted."""
    text = json.dumps(submission, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def make_step(
    name: str,
    command: Sequence[str] | str,
    items: object,
    inputs: Sequence[Input | Outputs],
    after: Iterable[Step],
    max_failures: int | str,
    fields: Mapping[str, Any],
) -> Step:
    """A step of a command.  Raises BadInput for what cannot be."""
    if unknown := sorted(fields.keys() - FIELDS):
        raise BadInput(f"step {name}: a step has no {unknown[0]!r}")
    base = Path(fields.get("base") or Path())
    texts = [item for item in inputs if isinstance(item, str | Path)]
    specs = specs_of(texts, base)
    own = [spec for spec in specs if spec.placeholders and isinstance(spec, InputSpec)]
    if sourced := [spec.source for spec in specs if spec.placeholders and spec not in own]:
        raise BadInput(f"step {name}: single jobs have no inputs from URLs, as {sourced[0]}")
    shared = [
        item
        for item in inputs
        if isinstance(item, OutputFile)
        or (isinstance(item, str | Path) and not specs_of([item], base)[0].placeholders)
    ]
    if isinstance(items, Outputs):
        source, table, columns = items, None, _columns_over(items)
    else:
        source, table = None, items_of(items)  # type: ignore[arg-type]
        columns = table.columns
    named = _named(command, fields, own)
    if lacking := sorted(named.difference(columns)):
        known = ", ".join(f"{{{column}}}" for column in columns) or "none"
        raise BadInput(f"step {name} names {{{lacking[0]}}}, but its items have {known}")
    return Step(
        name=name,
        submission={
            **fields, "command": command, "inputs": shared, "growing": True,
            "job_inputs": (*fields.get("job_inputs", ()), *JOB_INPUTS), "max_failures": "100%",
        },
        rows=[untyped(row) for _, row in table.rows()] if table else [],
        columns=columns,
        source=source,
        gathered=[Gathered(item) for item in inputs if isinstance(item, Outputs)],
        after=[*after],
        own_files=own,
        named=frozenset(named),
        tolerance=_tolerance(max_failures),
    )  # fmt: skip


def _named(
    command: Sequence[str] | str, fields: Mapping[str, Any], own: Iterable[InputSpec]
) -> set[str]:
    """Names of the placeholders of a step."""
    outputs = fields.get("outputs", ())
    texts = [
        *([command] if isinstance(command, str) else map(str, command)),
        *([outputs] if isinstance(outputs, str) else outputs),
        *map(str, (fields.get("env") or {}).values()),
        fields.get("stdin", ""),
    ]
    return {*placeholders_in(texts)}.union(*(spec.placeholders for spec in own))


def _columns_over(source: Outputs) -> tuple[str, ...]:
    """Names of the values of jobs over outputs, as `row_of` gives them."""
    return tuple(dict.fromkeys((*source.step.columns, ITEM)))


def _tolerance(max_failures: int | str) -> tuple[float, bool]:
    text = str(most_failures(max_failures))
    return float(text.rstrip("%")), text.endswith("%")


def row_of(step: Step, result: Result, file: OutputFile) -> dict[str, Scalar]:
    """Values of a job that is for an output of a step's job: that job's own, and the file's name.

    What a call is made of is no value of others.
    """
    return {**{name: result.args[name] for name in step.columns}, ITEM: file.name}
