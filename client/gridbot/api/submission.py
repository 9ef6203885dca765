"""Checks a submission on this machine and sends it to the server."""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from gridbot.api.connection import Connection, patiently
from gridbot.api.errors import BadInput, GridbotError, Refused
from gridbot.api.inputs import (
    InputSpec,
    JobInputs,
    LocalFile,
    Progress,
    local_file,
    placeholders_in,
    program_spec,
    specs_of,
    upload,
)
from gridbot.api.items import Items, RangeItems, Survey, carried, items_of, survey
from gridbot.api.policy import read_policy
from gridbot_client.protocol.messages import Resources

T = TypeVar("T")

CHUNK_JOBS = 20_000
CHUNK_BYTES = 16 * 1024 * 1024
PATIENCE_SECONDS = 120.0  # retries while a server restarts during a submission


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A BOT as its owner describes it.

    `command` is an argv (a string is split by shell rules) with placeholders: `{}` or `{i}` is the
    item of a range or the line of a file, `{name}` a CSV column or a key of an item.  `items` is a
    range, a Path of a .csv or a text file, a list of values or of mappings, or None for one job.
    `inputs` are `FILE`, `FILE=NAME` or directories, relative to `base`; a path with placeholders
    is one file per job.  `outputs` are names or patterns in the job's directory.  `policy` is a
    text or the Path of an .ad file.  `seconds` is the time limit of a job, wall clock.
    Submissions with the same `idempotency_key` are one BOT.
    """

    command: Sequence[str] | str
    items: Items | range | Path | Iterable[object] | None = None
    inputs: Sequence[str | Path] = ()
    outputs: Sequence[str] = ("stdout",)
    policy: str | Path = ""
    name: str = ""
    cpus: int = 1
    memory_mb: int = 512
    disk_mb: int = 1024
    seconds: float = 86_400.0
    gpus: int = 0
    platforms: Sequence[str] = ()
    max_output_mb: int = 64
    quorum: int = 1
    validator: str = "exact"
    max_attempts: int = 3
    max_replicas: int = 5
    failover_after: int | None = None
    tail_threshold: int | None = None
    tail_sticky: bool = True
    idempotency_key: str = field(default_factory=lambda: str(uuid.uuid4()))
    base: Path = field(default_factory=Path)


@dataclass(frozen=True)
class Prepared:
    """A checked submission: every file exists and every placeholder has a column."""

    body: Mapping[str, Any]  # the request, without its jobs
    items: Items
    survey: Survey
    files: Sequence[LocalFile]
    job_inputs: JobInputs | None
    notes: Sequence[str]

    def jobs(self) -> Iterator[Mapping[str, Any]]:
        """Yield each job as a JSON object of the request.  Raises BadInput."""
        for number, row in self.items.rows():
            try:
                job: dict[str, Any] = {"args": carried(row, self.survey.types)}
            except (KeyError, ValueError):
                raise BadInput(f"{self.items.where(number)}: changed during submission") from None
            if self.job_inputs:
                job["inputs"] = [asdict(ref) for ref in self.job_inputs.of(row)]
            yield job


def prepare(submission: Submission) -> Prepared:
    """Read and check a submission without the server.  Raises BadInput or PolicyError."""
    command = _command(submission)
    items = items_of(submission.items)
    specs = specs_of(submission.inputs, submission.base)
    _check_placeholders(command, specs, items)
    policy = submission.policy
    policy = read_policy(policy if isinstance(policy, str) else submission.base / policy)
    found = survey(items)
    files, notes = _shared_files(submission, command, specs)
    job_inputs = _job_inputs(submission, specs, items)
    return Prepared(
        body={
            **_body(submission, command),
            "policy": policy,
            "placeholders": dict(found.types),
            "inputs": [asdict(file.ref) for file in files],
        },
        items=items,
        survey=found,
        files=files + (list(job_inputs.files.values()) if job_inputs else []),
        job_inputs=job_inputs,
        notes=notes,
    )


def send(connection: Connection, prepared: Prepared, progress: Progress) -> dict[str, Any]:
    """Create the BOT and return the server's document.

    Idempotent: the idempotency key identifies the BOT, and jobs are sent from the first one that
    the server lacks.  So an interrupted submission continues with the same key.
    """
    upload(connection, prepared.files, progress)
    if isinstance(prepared.items, RangeItems) and not prepared.job_inputs:
        numbers = prepared.items.range
        jobs: object = {"range": [numbers.start, numbers.stop, numbers.step]}
        return _send(connection, "/bots", {**prepared.body, "jobs": jobs})
    chunks = _ahead(_chunks(_lines(prepared.jobs())))
    first = next(chunks)
    if len(first) == prepared.survey.count:
        jobs = {"items": [json.loads(line) for line in first]}
        return _send(connection, "/bots", {**prepared.body, "jobs": jobs})
    document = _send(connection, "/bots", {**prepared.body, "jobs": {"stream": True}})
    if document["state"] != "open":
        return document
    there = document["jobs_total"]
    bot = f"/bots/{document['id']}"
    offset = 0
    for chunk in chain([first], chunks):
        there = _send_chunk(connection, bot, chunk, offset, there)
        offset += len(chunk)
        progress("uploading jobs", offset, prepared.survey.count)
    return {**document, **_send(connection, f"{bot}/start", {})}


def _send_chunk(
    connection: Connection, bot: str, chunk: Sequence[bytes], offset: int, there: int
) -> int:
    """Send the jobs of a chunk that the server lacks; return the number of jobs it holds."""
    end = offset + len(chunk)
    while there < end:
        if there < offset:
            raise GridbotError(f"the server lost jobs: it holds {there} of {offset} sent")
        path, body = f"{bot}/jobs?offset={there}", b"".join(chunk[there - offset :])
        request = partial(connection.request, "POST", path, data=body, accept=(409,))
        answer = _patiently(request).json()
        # 409: either the offset to continue from, or the BOT takes no more jobs.
        if answer.get("jobs_total", there) == there:
            raise Refused(answer.get("detail", "the server accepts no more jobs for this BOT"))
        there = answer["jobs_total"]
    return there


def _send(connection: Connection, path: str, body: object) -> dict[str, Any]:
    document: dict[str, Any] = _patiently(partial(connection.send, "POST", path, body))
    return document


def _patiently(call: Callable[[], T]) -> T:
    return patiently(call, lambda waited: waited > PATIENCE_SECONDS)


def _lines(jobs: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    encode = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps makes one for each call
    return (encode(job).encode() + b"\n" for job in jobs)


def _ahead(source: Iterator[T]) -> Iterator[T]:
    """Yield the items of a source; a thread makes the next one while the caller uses this one."""
    with ThreadPoolExecutor(1) as maker:
        coming = maker.submit(next, source, None)
        while (item := coming.result()) is not None:
            coming = maker.submit(next, source, None)
            yield item


def _chunks(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Group lines into requests of at most CHUNK_JOBS lines and CHUNK_BYTES."""
    chunk: list[bytes] = []
    size = 0
    for line in lines:
        if chunk and (len(chunk) == CHUNK_JOBS or size + len(line) > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(line)
        size += len(line)
    if chunk:
        yield chunk


def _command(submission: Submission) -> list[str]:
    try:
        command = (
            shlex.split(submission.command)
            if isinstance(submission.command, str)
            else [str(part) for part in submission.command]
        )
    except ValueError as error:
        raise BadInput(f"the command {submission.command!r} cannot be split: {error}") from None
    if not command or not command[0]:
        raise BadInput("no command given; write it after --, as in: gridbot submit -- ./prog {}")
    return command


def _check_placeholders(command: Sequence[str], specs: Iterable[InputSpec], items: Items) -> None:
    named = placeholders_in(command)
    known = set(items.columns)
    for what, names in [
        ("the command", named),
        *((f"input {s.source}", s.placeholders) for s in specs),
    ]:
        unknown = sorted(names - known)
        if unknown:
            raise BadInput(f"{what} names {{{unknown[0]}}}, but {_columns(items)}")


def _columns(items: Items) -> str:
    if not items.columns:
        return "there are no items; add --items, --each-line or --range"
    return f"the items have only {', '.join(f'{{{name}}}' for name in items.columns)}"


def _shared_files(
    submission: Submission, command: Sequence[str], specs: Sequence[InputSpec]
) -> tuple[list[LocalFile], list[str]]:
    """Files common to all jobs, with the command's own program, and notes for the user."""
    base = submission.base
    shared = [spec for spec in specs if not spec.placeholders]
    program = program_spec(command, base, specs)
    own = program.name if program else None
    files = [local_file(spec, base, executable=spec.name == own) for spec in shared]
    notes = []
    if program and own not in {spec.name for spec in shared}:
        files.append(local_file(program, base, executable=True))
        notes.append(f"{program.source} is uploaded as an executable input of all jobs")
    names = [file.ref.name for file in files]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"two inputs are named {name}; rename one: --input FILE=NAME")
    for part in command[1:]:
        if part not in names and not placeholders_in((part,)) and (base / part).is_file():
            notes.append(
                f"{part} is a file here but not an input; if jobs need it, add --input {part}"
            )
    return files, notes


def _job_inputs(
    submission: Submission, specs: Iterable[InputSpec], items: Items
) -> JobInputs | None:
    """Find every job's own files, so that a missing one stops the whole submission."""
    own = [spec for spec in specs if spec.placeholders]
    if not own:
        return None
    found = JobInputs(own, submission.base)
    for number, row in items.rows():
        try:
            for _ in found.of(row):
                pass
        except BadInput as error:
            raise BadInput(f"{items.where(number)}: {error}") from None
    return found


def _body(submission: Submission, command: Sequence[str]) -> dict[str, Any]:
    for pattern in submission.outputs:
        if placeholders_in((pattern,)):
            raise BadInput(
                f"output {pattern!r}: placeholders are not allowed; write a pattern such as *.dat"
            )
    return {
        "submit_key": submission.idempotency_key,
        "name": submission.name or Path(command[0]).name,
        "command": command,
        "outputs": list(submission.outputs),
        "resources": asdict(
            Resources(
                cpus=submission.cpus,
                memory_mb=submission.memory_mb,
                disk_mb=submission.disk_mb,
                seconds=submission.seconds,
                gpus=submission.gpus,
            )
        ),
        "max_output_bytes": submission.max_output_mb * 1024 * 1024,
        "platforms": list(submission.platforms),
        "quorum": submission.quorum,
        "validator": submission.validator,
        "max_attempts": submission.max_attempts,
        "max_replicas": submission.max_replicas,
        "failover_after": submission.failover_after,
        "tail_threshold": submission.tail_threshold,
        "tail_sticky": submission.tail_sticky,
    }
