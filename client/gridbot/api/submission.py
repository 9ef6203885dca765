"""What a scientist submits, checked on this machine."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from gridbot.api.arguments import tidied
from gridbot.api.errors import BadInput
from gridbot.api.inputs import (
    Input,
    InputFile,
    JobInputs,
    LocalFile,
    SharedFile,
    local_file,
    sources_of,
    split,
    to_send,
)
from gridbot.api.items import (
    Items,
    RangeItems,
    Survey,
    ValueItems,
    carried,
    items_of,
    survey,
    untyped,
)
from gridbot.api.known_answers import Answers, read_known
from gridbot.api.policy import read_policy, with_priority
from gridbot.api.program import platforms_of
from gridbot.api.programs import PlatformProgram, read_rows, split_command, table_of
from gridbot.api.shared_files import SharedFiles, shared_files
from gridbot.api.specs import InputSpec, Spec, placeholders_in, specs_of
from gridbot.api.units import megabytes, most_failures, seconds
from gridbot_client.protocol import job_table
from gridbot_client.protocol.checkpoints import CheckpointRule
from gridbot_client.protocol.manifest import DEFAULT_MAX_OUTPUT_BYTES
from gridbot_client.protocol.messages import (
    JobInput,
    JobRange,
    Manifest,
    ProtocolError,
    RequestedWalls,
    Resources,
)
from gridbot_client.protocol.programs import HostProgram
from gridbot_client.protocol.programs import platforms as platforms_in


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A BOT as its owner describes it.

    `command` is an argv (a string is split by shell rules) with placeholders: `{}` or `{i}` is the
    item of a range or the line of a file, `{name}` a CSV column or a key of an item.  `items` is a
    range, a Path of a .csv or a text file, a list of values or of mappings, or None for one job.
    `inputs` are `FILE`, `FILE=NAME` or directories, relative to `base`; a path with placeholders
    is one file per job, a directory is read-only.  An output of another job's result is an input,
    too: the server has it.  `URL#sha256=…&size=…` is a file that the jobs' machines fetch there
    (`specs.py`).
    `job_inputs` are names or patterns of further files that appended jobs of a growing BOT bring;
    a `JobInput` says whether they may be programs.
    `outputs` are names or patterns in the job's directory, with placeholders if they differ from
    job to job; `FOUND=NAME` comes back under another name.  `policy` is a
    text or the Path of an .ad file; `priority` stands for `Rank = priority` in it.
    `memory`, `disk` and `max_output` of a job are MB or a text
    such as "2GB"; `time` is its limit, wall clock, in seconds or as "10m".  Strangers'
    machines give jobs no network unless `network` asks for it, and never less than level `sandbox`
    of walls around them.
    `exit_codes` are those with which a job gives an answer: a list of numbers, or "any"; others,
    and signals, are failures.  `env` are variables and `stdin` the name of the input that a
    job reads; both may have placeholders.
    `requirements` is a file for pip, `conda_pack` an archive of conda-pack: what they make is on
    the jobs' PATH.  `image` is the name of a container's image, or a file that is one.
    `validator` says when two answers agree: `exact`, `text`, `numbers:rel=1e-6,abs=1e-9`,
    `json:rel=1e-6,ignore=/time`, or `command:./compare`, a program that gets two directories of
    outputs and exits with 0 if they are equal and 1 if not.
    `known_answers` are results that are known beforehand, by which hosts are judged that cannot
    tell: a file (`api/known_answers.py`), or outputs by job: {17: "42\\n"} is its standard output.
    The first `resident` words of the command start a program that may stay for further jobs
    (`client/README.md`, "Programs that stay").
    So many consecutive jobs as `together` says are a gang: they start at the same time, and begin
    anew if one of them fails.  Its members wait for each other for the time `gather`.
    `checkpoint` names the files that a program saves before it exits with 85, to be started again
    with them, wherever; a `CheckpointRule` has another code, and how often it should save.
    A program that is made for BOINC's API, `boinc_api`, is run by BOINC clients alone.
    A `growing` BOT takes further jobs while it runs, until it is closed; it may begin without any.
    With `reuse`, a job that this user's BOTs have run already gets that outcome, and does not run:
    the same command, arguments, files, environment, image and names of outputs, and an answer that
    is at least as sure.
    `outputs_to` names a storage of this user (`gridbot storage add`): hosts send outputs there, and
    the server keeps those alone that travel in reports.
    `group` is a label that BOTs share: their results are one stream (`Session.group`).
    The BOT is held when more than `max_failures` of its jobs fail, a number or a share such as
    "5%"; also if its first replicas all fail alike, unless that is "100%".
    `programs` are for several platforms: each host runs the one with the most conditions of those
    that it meets, as {"linux-x86_64": PlatformProgram("linux/prog {}"), "linux-x86_64 gpu=nvidia":
    …}.  Their inputs, and programs with relative paths, go only to such hosts.
    Submissions with the same `idempotency_key` are one BOT.
    """

    command: Sequence[str] | str
    items: Items | range | Path | Iterable[object] | None = None
    inputs: Sequence[Input] = ()
    job_inputs: Sequence[str | JobInput] = ()
    outputs: Sequence[str] = ("stdout",)
    policy: str | Path = ""
    priority: int | None = None
    name: str = ""
    cpus: int = 1
    memory: int | str = 512
    disk: int | str = 1024
    time: float | str = 86_400.0
    gpus: int = 0
    platforms: Sequence[str] = ()
    programs: Mapping[str, PlatformProgram] = field(default_factory=dict)
    max_output: int | str = 64
    quorum: int = 1
    validator: str = "exact"
    known_answers: str | Path | Answers | None = None
    attempts: int = 3
    max_replicas: int = 5
    failover_after: int | None = None
    max_failures: int | str | None = None
    tail_threshold: int | None = None
    tail_sticky: bool = True
    network: bool = False
    sandbox: int = 0
    exit_codes: Iterable[int] | str = (0,)
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""
    requirements: str | Path = ""
    conda_pack: str | Path = ""
    image: str | Path = ""
    resident: int = 0
    together: int = 1
    gather: float | str = 60.0
    checkpoint: Sequence[str] | CheckpointRule = ()
    boinc_api: bool = False
    growing: bool = False
    reuse: bool = False
    outputs_to: str = ""
    group: str = ""
    idempotency_key: str = field(default_factory=lambda: str(uuid.uuid4()))
    base: Path = field(default_factory=Path)


@dataclass(frozen=True)
class Prepared:
    """A checked submission: every file exists and every placeholder has a column."""

    body: Mapping[str, Any]  # the request, without its jobs
    manifest: Manifest  # without what says who signs it
    items: Items
    survey: Survey
    files: Sequence[InputFile]
    job_inputs: JobInputs | None
    notes: Sequence[str]

    @property
    def growing(self) -> bool:
        """Whether further jobs may follow those that it has."""
        return bool(self.body.get("growing"))

    def jobs(self) -> Iterator[str]:
        """Yield each job in the canonical form that is signed.  Raises BadInput."""
        if self.growing:
            yield from growing_jobs(self.items, self.manifest.placeholders, self.job_inputs)
            return
        for number, row in self.items.rows():
            try:
                args = carried(row, self.survey.types)
            except (KeyError, ValueError):
                raise BadInput(f"{self.items.where(number)}: changed during submission") from None
            yield job_table.job_text(args, [*self.job_inputs.of(row)] if self.job_inputs else ())


def prepare(submission: Submission) -> Prepared:
    """Read and check a submission without the server.  Raises BadInput or PolicyError."""
    submission = tidied(submission)
    rows = read_rows(submission.programs, submission.command, submission.base)
    commands = [row.command for row in rows] or [split_command(submission.command)]
    words = [word for command in commands for word in command]
    items = items_of(_items(submission))
    paths, stored = split(submission.inputs)
    for_all = specs_of(paths, submission.base)
    specs = [*dict.fromkeys([*for_all, *(spec for row in rows for spec in row.specs)])]
    if not submission.growing or items.columns:
        _check_placeholders(submission, words, specs, items)
    policy = submission.policy
    policy = read_policy(policy if isinstance(policy, str) else submission.base / policy)
    if submission.priority is not None:
        policy = with_priority(policy, submission.priority)
    templates = [*words, *submission.env.values(), submission.stdin, *submission.outputs]
    found = _growing_survey(templates, specs, items) if submission.growing else survey(items)
    shared = shared_files(submission, commands, specs, stored)
    notes = [*shared.notes]
    programs = table_of(rows, for_all, shared.files)
    platforms = _platforms(submission, commands[0], programs, shared.files, notes)
    job_inputs = _job_inputs(submission, specs, items)
    manifest = _manifest(
        submission, commands[0], programs, items, found, shared, job_inputs, platforms
    )
    comparison = _comparison(submission)
    known = read_known(submission.known_answers, submission.base, items, found)
    body = {**_body(submission, manifest), "policy": policy}
    if known.documents:
        body["known_answers"] = known.documents
    if comparison:
        body["comparison"] = asdict(comparison.ref)
    return Prepared(
        body=body,
        manifest=manifest,
        items=items,
        survey=found,
        files=[
            *to_send(shared.files),
            *(job_inputs.files.values() if job_inputs else ()),
            *([comparison] if comparison else ()),
            *known.files,
        ],
        job_inputs=job_inputs,
        notes=notes,
    )


def growing_jobs(
    items: Items, columns: Iterable[str], job_inputs: JobInputs | None
) -> Iterator[str]:
    """Yield jobs of a growing BOT in the canonical form that is signed.

    Each has values for the columns that the BOT began with.  Raises BadInput.
    """
    wanted = frozenset(columns)
    for number, row in items.rows():
        if lacking := sorted(wanted - row.keys()):
            raise BadInput(f"{items.where(number)} has no value for {{{lacking[0]}}}")
        try:
            args = untyped(row)
            inputs = [*job_inputs.of(row)] if job_inputs else ()
        except BadInput as error:
            raise BadInput(f"{items.where(number)}: {error}") from None
        yield job_table.job_text(args, inputs)


def _items(submission: Submission) -> Items | range | Path | Iterable[object] | None:
    """Source of the items; without any, a growing BOT begins without jobs."""
    return () if submission.items is None and submission.growing else submission.items


def _growing_survey(templates: Sequence[str], specs: Iterable[Spec], items: Items) -> Survey:
    """Columns of the items, or without any those that are named; all may hold any text later."""
    named = placeholders_in(templates).union(*(spec.placeholders for spec in specs))
    count = sum(1 for _ in growing_jobs(items, items.columns, None))
    return Survey(count, dict.fromkeys(sorted(items.columns or named), "text"))


def _check_placeholders(
    submission: Submission, command: Sequence[str], specs: Iterable[Spec], items: Items
) -> None:
    known = set(items.columns)
    for what, names in [
        ("the command", placeholders_in(command)),
        ("the environment", placeholders_in((*submission.env.values(),))),
        ("standard input", placeholders_in((submission.stdin,))),
        ("the outputs", placeholders_in((*submission.outputs,))),
        *((f"input {s.source}", s.placeholders) for s in specs),
    ]:
        unknown = sorted(names - known)
        if unknown:
            raise BadInput(f"{what} names {{{unknown[0]}}}, but {_columns(items, unknown[0])}")


def _columns(items: Items, lacked: str) -> str:
    if not items.columns:
        return "there are no items; add --items, --each-line or --range"
    known = f"the items have only {', '.join(f'{{{name}}}' for name in items.columns)}"
    if isinstance(items, ValueItems) and lacked in items.index:
        return f"{known}: {lacked} is in the frame's index; pass frame.reset_index()"
    return known


def _platforms(
    submission: Submission,
    command: Sequence[str],
    programs: Sequence[HostProgram],
    files: Sequence[SharedFile],
    notes: list[str],
) -> Sequence[str]:
    """Where the jobs can run: as it was asked for, else what the program's own file says."""
    if programs:
        if submission.platforms:
            raise BadInput("platform: a table of programs names the platforms; leave it out")
        return platforms_in(programs)
    name = str(PurePosixPath(command[0]))
    own = [file.path for file in files if isinstance(file, LocalFile) and file.ref.name == name]
    found = platforms_of(own[0]) if own else ()
    asked = submission.platforms
    if not found:
        return asked
    if not asked:
        notes.append(
            f"{command[0]} is a program for {' and '.join(found)}: only such hosts get jobs"
        )
        return found
    if others := sorted(set(asked).difference(found)):
        notes.append(
            f"{command[0]} is a program for {' and '.join(found)}, not for {' and '.join(others)}"
        )
    return asked


def _job_inputs(submission: Submission, specs: Iterable[Spec], items: Items) -> JobInputs | None:
    """Find every job's own files, so that a missing one stops the whole submission."""
    own = [spec for spec in specs if spec.placeholders]
    if not own:
        return None
    found = JobInputs(own, submission.base)
    if submission.growing:
        found.expect_any()
    for number, row in items.rows():
        try:
            for _ in found.of(row):
                pass
        except BadInput as error:
            raise BadInput(f"{items.where(number)}: {error}") from None
    return found


def _manifest(
    submission: Submission,
    command: Sequence[str],
    programs: Sequence[HostProgram],
    items: Items,
    found: Survey,
    shared: SharedFiles,
    job_inputs: JobInputs | None,
    platforms: Sequence[str],
) -> Manifest:
    """What the jobs run, as far as the submitter knows it."""
    for output in submission.outputs:
        if output.endswith("="):
            raise BadInput(f"output {output!r}: write FOUND=NAME, or FOUND alone")
    outputs = dict(output.partition("=")[::2] for output in submission.outputs)
    rule, codes = None, submission.exit_codes
    if isinstance(items, RangeItems) and job_inputs is None and not submission.growing:
        rule = JobRange(items.range.start, items.range.step, len(items.range))
    manifest = Manifest(
        owner="",
        command=tuple(command),
        placeholders=dict(found.types),
        inputs=tuple(file.ref for file in shared.files),
        archives=shared.archives,
        requirements=shared.requirements,
        conda_pack=shared.conda_pack,
        image=shared.image,
        outputs=tuple(outputs),
        output_names={found: name for found, name in outputs.items() if name},
        resources=Resources(
            cpus=submission.cpus,
            memory_mb=limit("memory", submission.memory),
            disk_mb=limit("disk", submission.disk),
            seconds=time_limit(submission.time),
            gpus=submission.gpus,
        ),
        max_output_bytes=limit("max_output", submission.max_output) * 1024 * 1024,
        platforms=tuple(platforms),
        job_inputs=tuple(
            sorted(
                {*(job_inputs.names if job_inputs else ()), *map(_pattern, submission.job_inputs)},
                key=str,
            )
        ),
        range=rule,
        walls=RequestedWalls(submission.sandbox, submission.network),
        exit_codes=codes if isinstance(codes, str) else tuple(sorted(set(codes))),
        environment=dict(submission.env),
        stdin=submission.stdin,
        resident=submission.resident,
        together=submission.together,
        checkpoint=_checkpoint(submission.checkpoint),
        boinc_api=submission.boinc_api,
        programs=tuple(programs),
        sources={**sources_of(shared.files), **(job_inputs.sources if job_inputs else {})},
    )
    return checked(manifest)


def _checkpoint(asked: Sequence[str] | CheckpointRule) -> CheckpointRule | None:
    if isinstance(asked, CheckpointRule):
        return asked
    return CheckpointRule((asked,) if isinstance(asked, str) else tuple(asked)) if asked else None


def _pattern(name: str | JobInput) -> JobInput:
    return name if isinstance(name, JobInput) else JobInput(name)


def checked(manifest: Manifest) -> Manifest:
    """The manifest as the server will read it.  Raises BadInput, also if its limits contradict."""
    disk, most = manifest.resources.disk_mb, manifest.max_output_bytes >> 20
    if most > disk and manifest.max_output_bytes != DEFAULT_MAX_OUTPUT_BYTES:
        raise BadInput(
            f"max_output of {most} MB is more than disk, {disk} MB: outputs lie there until they"
            " are sent; give more disk (--disk), or less max_output (--max-output)"
        )
    try:
        return Manifest.from_text(manifest.text())
    except ProtocolError as error:
        raise BadInput(str(error)) from None


def limit(name: str, value: int | str) -> int:
    """MB of a limit, whose name an error tells.  Raises BadInput."""
    try:
        return megabytes(value)
    except BadInput as error:
        raise BadInput(f"{name}: {error}") from None


def _gathering(submission: Submission) -> float:
    try:
        return seconds(submission.gather)
    except BadInput as error:
        raise BadInput(f"gather: {error}") from None


def time_limit(value: float | str) -> float:
    """Seconds of the time limit.  Raises BadInput."""
    try:
        return seconds(value)
    except BadInput as error:
        raise BadInput(f"time: {error}") from None


def _comparison(submission: Submission) -> LocalFile | None:
    """The program of the validator `command:./compare`, which runs on the server."""
    kind, _, options = submission.validator.partition(":")
    if kind != "command":
        return None
    try:
        program = shlex.split(options)[0]
    except (ValueError, IndexError):
        raise BadInput(
            f"validator {submission.validator!r} names no program; write command:./compare"
        ) from None
    return local_file(InputSpec(program, Path(program).name), submission.base, executable=True)


def _body(submission: Submission, manifest: Manifest) -> dict[str, Any]:
    fields = asdict(manifest)
    max_failures = most_failures(submission.max_failures)
    taken = (
        "command", "placeholders", "inputs", "outputs", "resources", "max_output_bytes",
        "platforms", "job_inputs", "walls",
    )  # fmt: skip
    return {
        "submit_key": submission.idempotency_key,
        "name": submission.name or Path(manifest.command[0]).name,
        **{name: fields[name] for name in taken},
        **manifest.later(),
        **manifest.optional(),
        "quorum": submission.quorum,
        "validator": submission.validator,
        "max_attempts": submission.attempts,
        "max_replicas": submission.max_replicas,
        "failover_after": submission.failover_after,
        **({} if max_failures is None else {"max_failures": max_failures}),
        "tail_threshold": submission.tail_threshold,
        "tail_sticky": submission.tail_sticky,
        **({"growing": True} if submission.growing else {}),
        **({"reuse": True} if submission.reuse else {}),
        **({"outputs_to": submission.outputs_to} if submission.outputs_to else {}),
        **({"group": submission.group} if submission.group else {}),
        **({"gather_seconds": _gathering(submission)} if submission.together > 1 else {}),
    }
