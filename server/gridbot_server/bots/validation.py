"""A submission made sense of: its manifest, policies and jobs, or the first thing wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gridbot_client.protocol.messages import (
    MAX_BIGINT,
    MAX_NAME_BYTES,
    FileRef,
    Manifest,
    ProtocolError,
    Scalar,
    file_name,
    file_ref,
    job_args,
    resources,
)
from gridbot_client.protocol.template import TemplateError, fill, placeholders_in
from gridbot_policies import PolicySet, SemanticError
from gridbot_policies.classad import ParseError
from gridbot_policies.lint.check import warnings
from gridbot_server.errors import InvalidPolicy, RequestError
from gridbot_server.models.requests import Jobs, SubmissionRequest
from gridbot_server.validators import VALIDATORS

RANGE_PLACEHOLDER = "i"

_PART = r"[A-Za-z0-9_*?\[][A-Za-z0-9._+=@%*?\[\]!-]*"
_PATTERN = re.compile(rf"{_PART}(/{_PART})*")


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


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job's arguments and its own input files."""

    args: Mapping[str, Scalar]
    inputs: tuple[FileRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """A submission that only the database can still refuse; without jobs it is open."""

    manifest: Manifest
    policies: PolicySet
    jobs: Range | list[JobSpec] | None

    @property
    def size(self) -> int:
        """How many jobs it brings along."""
        if self.jobs is None:
            return 0
        return self.jobs.size if isinstance(self.jobs, Range) else len(self.jobs)


def make_draft(body: SubmissionRequest, owner: str) -> Draft:
    """Check a submission; raise RequestError, InvalidPolicy or ProtocolError for what is wrong."""
    policies = parse_policy(body.policy)
    jobs = _jobs(body.jobs)
    _check_limits(body)
    manifest = _manifest(body, owner, jobs)
    if isinstance(jobs, list):
        check_jobs(manifest, jobs, first=0)
    return Draft(manifest, policies, jobs)


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
        if unknown := raw.keys() - {"args", "inputs"}:
            raise ProtocolError(f"unknown field {min(unknown)}")
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
    for number, job in enumerate(jobs, first):
        try:
            fill(manifest.command, manifest.placeholders, job.args)
        except TemplateError as error:
            raise RequestError(f"job {number}: {error}") from None
        if job.inputs:
            _check_names(f"job {number}: inputs", [*shared, *(ref.name for ref in job.inputs)])


def _jobs(body: Jobs) -> Range | list[JobSpec] | None:
    if len(body.model_fields_set) != 1:
        raise RequestError("jobs: expected exactly one of range, items and stream")
    if body.range is not None:
        return _range(body.range)
    if body.items is not None:
        if not body.items:
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


def _manifest(body: SubmissionRequest, owner: str, jobs: Range | list[JobSpec] | None) -> Manifest:
    types = {RANGE_PLACEHOLDER: "int"} if isinstance(jobs, Range) else dict(body.placeholders)
    _check_placeholders(body.command, types, jobs)
    for index, pattern in enumerate(body.outputs):
        _check_pattern(f"outputs[{index}]", pattern)
    _check_names("inputs", [file_name(ref.name, "inputs") for ref in body.inputs])
    manifest = Manifest(
        owner=owner,
        command=tuple(body.command),
        placeholders=types,
        inputs=tuple(FileRef(**ref.model_dump()) for ref in body.inputs),
        outputs=tuple(body.outputs),
        resources=resources(body.resources.model_dump()),
        max_output_bytes=body.max_output_bytes,
        platforms=tuple(body.platforms),
    )
    return Manifest.from_text(manifest.text())  # the client's own checks


def _check_placeholders(
    command: Sequence[str], types: Mapping[str, str], jobs: Range | list[JobSpec] | None
) -> None:
    try:
        unknown = placeholders_in(command) - types.keys()
    except TemplateError as error:
        raise RequestError(f"command: {error}") from None
    if not unknown:
        return
    named = ", ".join(f"{{{name}}}" for name in sorted(unknown))
    if isinstance(jobs, Range):
        raise RequestError(f"command names {named}, but a range has only {{{RANGE_PLACEHOLDER}}}")
    columns = sorted({name for job in jobs or () for name in job.args} | types.keys())
    known = ", ".join(f"{{{name}}}" for name in columns) or "none"
    raise RequestError(f"command names {named}, but the items have only {known}")


def _check_pattern(where: str, pattern: str) -> None:
    if len(pattern) > MAX_NAME_BYTES or not _PATTERN.fullmatch(pattern):
        raise RequestError(
            f"{where}: {pattern!r} is not a usable file name or pattern (letters, digits, ._+=@%-"
            " and *?[] in parts that do not begin with a dot or a dash)"
        )


def _check_names(where: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise RequestError(f"{where}: the name {name} is given twice")
        seen.add(name)


def _check_limits(body: SubmissionRequest) -> None:
    if body.quorum > body.max_replicas:
        raise RequestError(
            f"max_replicas {body.max_replicas} is less than the quorum {body.quorum}"
        )
    if body.validator not in VALIDATORS:
        raise RequestError(
            f"unknown validator {body.validator!r}; known: {', '.join(sorted(VALIDATORS))}"
        )
