"""A submission made sense of: its manifest, policies and jobs, or the first thing wrong with it."""

from __future__ import annotations

import binascii
import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from gridbot_client.protocol import boinc_api
from gridbot_client.protocol.checkpoints import CheckpointRule
from gridbot_client.protocol.manifest import (
    CLOCK_ERROR_SECONDS,
    admits,
    job_input,
)
from gridbot_client.protocol.messages import (
    MAX_BIGINT,
    FileRef,
    JobInput,
    JobRange,
    Manifest,
    ProtocolError,
    RequestedWalls,
    Scalar,
    file_name,
    file_ref,
    job_args,
    resources,
)
from gridbot_client.protocol.output_names import has_templates, is_usable_pattern, output_names
from gridbot_client.protocol.programs import HostProgram
from gridbot_client.protocol.signatures import manifest_statement, verify
from gridbot_client.protocol.software import Unpacked, covered
from gridbot_client.protocol.sources import SourceTemplates
from gridbot_client.protocol.template import Template, TemplateError, placeholders_in
from gridbot_policies import PolicySet, SemanticError
from gridbot_policies.classad import ParseError
from gridbot_policies.lint.check import warnings
from gridbot_server.bots import gangs, known_answers
from gridbot_server.bots.known_answers import Arguments, CheckedAnswers
from gridbot_server.errors import InvalidEnvelope, InvalidPolicy, RequestError
from gridbot_server.models.requests import Checkpoint, Envelope, File, Jobs, SubmissionRequest
from gridbot_server.validators.spec import UnknownValidator, Validator
from gridbot_server.validators.spec import parse as parse_validator

RANGE_PLACEHOLDER = "i"


# For a submission that does not say which names its jobs' inputs have.
_ANY_NAME = (JobInput("*"), JobInput("*/*"), JobInput("*/*/*"))
_JOB_FIELDS = frozenset({"args", "inputs"})


@dataclass(frozen=True, slots=True)
class Seal:
    """Who signs a manifest, and for what: fields of `Manifest`."""

    project: str
    bot: str
    owner_key: str
    not_before: int
    expires: int


@dataclass(frozen=True, slots=True)
class Range:
    """Jobs whose only argument counts from `start` to below `stop`, as Python's range does."""

    start: int
    stop: int
    step: int

    @property
    def size(self) -> int:
        """How many jobs these are; more than any `len` can tell is possible."""
        span = self.stop - self.start + self.step - (1 if self.step > 0 else -1)
        return max(0, span // self.step)

    @property
    def ends(self) -> tuple[JobSpec, JobSpec]:
        """The first job and the last one: no argument between them is longer."""
        last = self.start + self.step * (self.size - 1)
        first, end = ({RANGE_PLACEHOLDER: number} for number in (self.start, last))
        return JobSpec(first), JobSpec(end)


class JobSpec(NamedTuple):
    """One job's arguments and its own input files."""

    args: Mapping[str, Scalar]
    inputs: tuple[FileRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """A submission that only the database can still refuse; without jobs it is open.

    `signature` is the owner's over the manifest, None if it must be signed yet; `parts` are those
    over the parts of the job table.
    """

    manifest: Manifest
    policies: PolicySet
    jobs: Range | list[JobSpec] | None
    signature: bytes | None
    parts: list[bytes]
    known: CheckedAnswers = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many jobs it brings along."""
        return _size(self.jobs) or 0


def _size(jobs: Range | list[JobSpec] | None) -> int | None:
    return jobs.size if isinstance(jobs, Range) else None if jobs is None else len(jobs)


def make_draft(body: SubmissionRequest, owner: str, seal: Seal) -> Draft:
    """Check a submission; raise RequestError, InvalidPolicy or ProtocolError for what is wrong.

    `seal` is what the manifest of a BOT that arrives unsigned says of its signer.
    """
    policies = parse_policy(body.policy)
    jobs = _jobs(body.jobs, growing=body.growing)
    validator = _check_limits(body)
    manifest = _manifest(body, owner, jobs, seal)
    size = None if body.growing else _size(jobs)
    gangs.check(body, size)
    known = known_answers.check(body.known_answers, manifest, validator, size, _arguments(jobs))
    if isinstance(jobs, list):
        check_jobs(manifest, jobs, first=0)
    elif isinstance(jobs, Range) and manifest.boinc_api:
        check_jobs(manifest, jobs.ends, first=0)
    signature = None
    if body.envelope:
        signature = binascii.a2b_base64(body.envelope.signature)
        key = bytes.fromhex(manifest.owner_key)
        if not verify(key, manifest_statement(manifest.text()), signature):
            raise InvalidEnvelope(
                "envelope.signature: it is not the owner key's over this submission's manifest"
            )
    if body.parts and not (signature and isinstance(jobs, list)):
        raise RequestError(
            f"parts: {len(body.parts)} signatures over jobs, which only the items of a submission"
            " with an envelope have"
        )
    parts = list(map(binascii.a2b_base64, body.parts))
    return Draft(manifest, policies, jobs, signature, parts, known)


def _arguments(jobs: Range | list[JobSpec] | None) -> Arguments:
    if isinstance(jobs, Range):
        return lambda number: {RANGE_PLACEHOLDER: jobs.start + number * jobs.step}
    return lambda number: jobs[number].args if jobs and number < len(jobs) else None


def parse_policy(text: str) -> PolicySet:
    """Read a policy; raise InvalidPolicy that says where it is wrong and shows the place."""
    try:
        return PolicySet.parse(text)
    except ParseError as error:
        raise InvalidPolicy(str(error), pretty=error.pretty()) from None
    except SemanticError as error:
        raise InvalidPolicy(str(error), pretty=str(error)) from None


def policy_warnings(policies: PolicySet) -> list[str]:
    """Return what is legal in a policy but hardly meant."""
    return warnings(policies)


def read_job(raw: Any, number: int) -> JobSpec:
    """Read one job: `{"args": {…}, "inputs": […]}`, or its arguments alone."""
    try:
        if not isinstance(raw, dict) or not isinstance(raw.get("args"), dict):
            return JobSpec(job_args(raw))
        if not raw.keys() <= _JOB_FIELDS:
            raise ProtocolError(f"unknown field {min(raw.keys() - _JOB_FIELDS)}")
        files = raw.get("inputs") or []
        if not isinstance(files, list):
            raise ProtocolError("inputs: expected a list")
        return JobSpec(job_args(raw["args"]), tuple(file_ref(item) for item in files))
    except ProtocolError as error:
        raise RequestError(f"job {number}: {error}") from None


def check_jobs(manifest: Manifest, jobs: Sequence[JobSpec], first: int) -> None:
    """Make sure that every job fills the command; raise RequestError naming the first that fails.

    The client's own code fills it here, so that what passes cannot fail there.
    """
    shared = [ref.name for ref in manifest.inputs]
    for_all = {*shared} - {name for item in manifest.programs for name in item.inputs}
    program_names = manifest.program_names
    is_named = has_templates(manifest)
    for_boinc = manifest.variants() if manifest.boinc_api else ()
    *templates, stdin_template = map(Template.parse, manifest.templates)
    varying = [template for template in templates if template.names]
    types, sources = manifest.placeholders, SourceTemplates.parse(manifest.sources)
    for number, job in enumerate(jobs, first):
        try:
            for template in varying:
                template.fill(types, job.args)
            stdin = stdin_template.fill(types, job.args)
            if is_named:
                output_names(manifest, job.args)
            for run in for_boinc:
                boinc_api.check_job(run, job.args, job.inputs)
            sources.fill(types, job.args, {ref.name for ref in job.inputs})
        except (TemplateError, ProtocolError) as error:
            raise RequestError(f"job {number}: {error}") from None
        if stdin and stdin not in for_all and stdin not in {ref.name for ref in job.inputs}:
            whose = "an input for all hosts" if stdin in shared else "an input"
            raise RequestError(f"job {number}: stdin: {stdin} is not the name of {whose}")
        if job.inputs:
            check_names(f"job {number}: inputs", [*shared, *(ref.name for ref in job.inputs)])
            _check_job_inputs(f"job {number}: inputs", manifest, program_names, job.inputs)


def files_to_send(manifest: Manifest, jobs: Iterable[JobSpec] = ()) -> Iterator[FileRef]:
    """Yield the files that clients fetch from the server alone: they must be here.

    The jobs are such as `check_jobs` has taken.
    """
    yield from (ref for ref in manifest.inputs if ref.name not in manifest.sources)
    sources = SourceTemplates.parse(manifest.sources)
    for job in jobs:
        if job.inputs:
            own = {ref.name for ref in job.inputs}
            sourced = sources.fill(manifest.placeholders, job.args, own)
            yield from (ref for ref in job.inputs if ref.name not in sourced)


def _jobs(body: Jobs, *, growing: bool) -> Range | list[JobSpec] | None:
    if len(body.model_fields_set) != 1:
        raise RequestError("jobs: expected exactly one of range, items and stream")
    if body.range is not None:
        if growing:
            raise RequestError("jobs.range: a range does not grow; send its jobs as items")
        return _range(body.range)
    if body.items is not None:
        if not body.items and not growing:
            raise RequestError("jobs.items: empty; at least one job is needed")
        return [read_job(item, number) for number, item in enumerate(body.items)]
    return None


def _range(numbers: list[int]) -> Range:
    if len(numbers) not in (2, 3):
        raise RequestError("jobs.range: expected [first, end] or [first, end, step]")
    jobs = Range(numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else 1)
    if jobs.step == 0:
        raise RequestError("jobs.range: the step must not be 0")
    if jobs.size == 0:
        raise RequestError(f"jobs.range: {jobs.start}:{jobs.stop}:{jobs.step} has no jobs")
    if jobs.size * abs(jobs.step) > MAX_BIGINT:
        raise RequestError(f"jobs.range: {jobs.start}:{jobs.stop}:{jobs.step} exceeds 64 bits")
    return jobs


def _check_job_inputs(
    where: str, manifest: Manifest, program_names: Collection[str], inputs: Iterable[FileRef]
) -> None:
    for ref in inputs:
        if posixpath.normpath(ref.name) in program_names:
            raise RequestError(f"{where}: {ref.name} would replace the command")
        if archive := next((a for a in manifest.archives if covered(a, [ref.name])), ""):
            raise RequestError(f"{where}: {ref.name} would lie in {archive}, or above it")
        if not admits(manifest.job_inputs, ref):
            kind = "an executable" if ref.executable else "a file"
            raise RequestError(f"{where}: job_inputs allow no job to have {kind} {ref.name}")


def _manifest(
    body: SubmissionRequest, owner: str, jobs: Range | list[JobSpec] | None, seal: Seal
) -> Manifest:
    types = {RANGE_PLACEHOLDER: "int"} if isinstance(jobs, Range) else dict(body.placeholders)
    _check_placeholders("command", body.command, types, jobs)
    for program in body.programs:
        _check_placeholders(f"programs: {program.where!r}: command", program.command, types, jobs)
    _check_placeholders("environment", [*body.environment.values()], types, jobs)
    _check_placeholders("stdin", [body.stdin], types, jobs)
    named = [*body.outputs, *body.output_names.values()]
    _check_placeholders("outputs", named, types, jobs)
    places = [*body.sources, *(url for urls in body.sources.values() for url in urls)]
    _check_placeholders("sources", places, types, jobs)
    for index, pattern in enumerate(body.outputs):
        if "{" not in pattern:
            _check_pattern(f"outputs[{index}]", pattern)
    check_names("inputs", [file_name(ref.name, "inputs") for ref in body.inputs])
    manifest = Manifest(
        owner=owner,
        command=tuple(body.command),
        placeholders=types,
        inputs=tuple(FileRef(**ref.model_dump()) for ref in body.inputs),
        outputs=tuple(body.outputs),
        resources=resources(body.resources.model_dump()),
        max_output_bytes=body.max_output_bytes,
        platforms=tuple(body.platforms),
        job_inputs=_job_inputs(body, jobs),
        range=JobRange(jobs.start, jobs.step, jobs.size) if isinstance(jobs, Range) else None,
        walls=RequestedWalls(body.walls.level, body.walls.network),
        exit_codes=body.exit_codes if isinstance(body.exit_codes, str) else tuple(body.exit_codes),
        environment=dict(body.environment),
        stdin=body.stdin,
        output_names=dict(body.output_names),
        archives={name: Unpacked(**item.model_dump()) for name, item in body.archives.items()},
        requirements=body.requirements,
        conda_pack=body.conda_pack,
        image=body.image,
        resident=body.resident,
        together=body.together,
        checkpoint=_checkpoint(body.checkpoint),
        boinc_api=body.boinc_api,
        programs=tuple(
            HostProgram(item.where, tuple(item.command), tuple(item.inputs))
            for item in body.programs
        ),
        sources={name: tuple(urls) for name, urls in body.sources.items()},
        **asdict(_sealed(body.envelope, seal)),
    )
    _check_stdin(manifest)
    _check_output_names(manifest)
    return Manifest.from_text(manifest.text())  # the client's own checks


def _checkpoint(asked: Checkpoint | None) -> CheckpointRule | None:
    if asked is None:
        return None
    return CheckpointRule(tuple(asked.files), asked.exit_code, asked.every)


def _job_inputs(
    body: SubmissionRequest, jobs: Range | list[JobSpec] | None
) -> tuple[JobInput, ...]:
    """Names that jobs' own inputs may have: those asked for, or any plain file's."""
    if body.job_inputs is not None:
        return tuple(job_input(item.model_dump()) for item in body.job_inputs)
    return () if isinstance(jobs, Range) else _ANY_NAME


def _sealed(envelope: Envelope | None, seal: Seal) -> Seal:
    if envelope is None:
        return seal
    if envelope.project != seal.project:
        raise InvalidEnvelope(f"envelope.project: {envelope.project} is not this project")
    if envelope.expires <= seal.not_before:
        raise InvalidEnvelope(f"envelope.expires: {envelope.expires} is in the past")
    if envelope.not_before > seal.not_before + 2 * CLOCK_ERROR_SECONDS:
        raise InvalidEnvelope(
            f"envelope.not_before: {envelope.not_before} is more than a day ahead; is the clock of"
            " the machine that signed right?"
        )
    return Seal(**envelope.model_dump(exclude={"signature"}))


def _check_stdin(manifest: Manifest) -> None:
    """Make sure that standard input may be an input of each job, as far as can be told yet."""
    name = manifest.stdin
    if not name or placeholders_in([name]):
        return
    named = FileRef(file_name(name, "stdin"), "", 0)
    is_shared = any(ref.name == name for ref in manifest.inputs)
    if not is_shared and not admits(manifest.job_inputs, named):
        raise RequestError(f"stdin: {name} is not the name of an input")


def _check_output_names(manifest: Manifest) -> None:
    """Check names that all jobs have, and those of a range's ends: between these none is worse."""
    samples = [dict[str, Scalar]()] if not has_templates(manifest) else []
    if (found := manifest.range) is not None:
        ends = (found.start, found.start + found.step * (found.size - 1))
        samples = [{RANGE_PLACEHOLDER: end} for end in ends]
    for args in samples:
        try:
            output_names(manifest, args)
        except TemplateError as error:
            raise RequestError(f"outputs: {error}") from None


def _check_placeholders(
    where: str,
    templates: Sequence[str],
    types: Mapping[str, str],
    jobs: Range | list[JobSpec] | None,
) -> None:
    try:
        unknown = placeholders_in(templates) - types.keys()
    except TemplateError as error:
        raise RequestError(f"{where}: {error}") from None
    if not unknown:
        return
    named = ", ".join(f"{{{name}}}" for name in sorted(unknown))
    if isinstance(jobs, Range):
        raise RequestError(f"{where} names {named}, but a range has only {{{RANGE_PLACEHOLDER}}}")
    columns = sorted({name for job in jobs or () for name in job.args} | types.keys())
    known = ", ".join(f"{{{name}}}" for name in columns) or "none"
    raise RequestError(f"{where} names {named}, but the items have only {known}")


def _check_pattern(where: str, pattern: str) -> None:
    if not is_usable_pattern(pattern):
        raise RequestError(
            f"{where}: {pattern!r} is not a usable file name or pattern (letters, digits, ._+=@%-"
            " and *?[] in parts that do not begin with a dot or a dash)"
        )


def check_names(where: str, names: Iterable[str]) -> None:
    """Raise RequestError for a name that is given twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise RequestError(f"{where}: the name {name} is given twice")
        seen.add(name)


def _check_limits(body: SubmissionRequest) -> Validator:
    if body.quorum > body.max_replicas:
        raise RequestError(
            f"max_replicas {body.max_replicas} is less than the quorum {body.quorum}"
        )
    try:
        validator = parse_validator(body.validator)
    except UnknownValidator as error:
        raise RequestError(str(error)) from None
    _check_comparison(validator, body.comparison)
    _check_storage(body, validator)
    return validator


def _check_storage(body: SubmissionRequest, validator: Validator) -> None:
    """Refuse what needs contents at this server, where outputs go elsewhere."""
    if body.outputs_to is None:
        return
    if validator.kind != "exact":
        raise RequestError(
            f"outputs_to: the validator {body.validator} compares contents, which are not at the"
            " server; only exact goes with it"
        )
    if body.reuse:
        raise RequestError("outputs_to: answers that are reused are at the server, not there")


def _check_comparison(validator: Validator, program: File | None) -> None:
    if validator.kind != "command":
        if program is not None:
            raise RequestError("comparison: only the validator command:./compare runs a program")
        return
    file_name(validator.program, "validator")
    if program is None:
        raise RequestError(f"comparison: the program {validator.argv[0]} is not named by its hash")
