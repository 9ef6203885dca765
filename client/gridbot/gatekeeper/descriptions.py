"""What a description in one of ARC's languages asks for, and the BOT that it becomes.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gridbot.api.errors import BadInput
from gridbot.api.submission import checked
from gridbot.rsl.values import literal
from gridbot_client.protocol.fields import STREAMS, ProtocolError, file_name
from gridbot_client.protocol.manifest import Manifest, Resources

QUEUE = "gridbot"  # the only one
# Files of one job; a replica has at most 256 outputs, its streams among them.
MOST_INPUTS, MOST_OUTPUTS = 1000, 250
MOST_SLOTS = 1024  # of one job
MOST_CHARACTERS = 1 << 16  # of a description, as it is kept
_MOST_TEXT = 200
# The program of a job whose streams are one file.
_JOINED = ("sh", "-c", 'exec "$0" "$@" 2>&1')


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file that the client sends before the job starts."""

    name: str
    is_executable: bool = False


@dataclass(frozen=True, slots=True)
class JobDescription:
    """One job; sizes are MB, times seconds.  `memory_mb` is that of each slot."""

    executable: str
    arguments: tuple[str, ...] = ()
    name: str = ""
    inputs: tuple[SentFile, ...] = ()
    outputs: tuple[str, ...] = ()  # files, or directories with a slash behind
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    slots: int = 1
    memory_mb: int | None = None
    disk_mb: int | None = None
    seconds: int | None = None
    queue: str = ""


def with_program(job: JobDescription) -> JobDescription:
    """The job, with its program named as the input file that it is, and that marked executable.

    A job whose program is no input file stays as it is.
    """
    program = job.executable.removeprefix("./")
    if program not in (file.name for file in job.inputs):
        return job
    inputs = (
        replace(file, is_executable=file.is_executable or file.name == program)
        for file in job.inputs
    )
    return replace(job, executable=program, inputs=tuple(inputs))


def check(job: JobDescription) -> None:
    """Check that a job, as `with_program` gives it, can run here.

    Raises BadInput that names the first fault.
    """
    if job.queue not in ("", QUEUE):
        raise BadInput(f"queue {job.queue[:_MOST_TEXT]}: the only queue is {QUEUE}")
    if job.slots > MOST_SLOTS:
        raise BadInput(f"{job.slots} slots, at most {MOST_SLOTS}")
    try:
        _check_inputs(job)
        _check_outputs(job)
    except ProtocolError as error:
        raise BadInput(str(error)) from None
    checked(_manifest(job))


def _check_inputs(job: JobDescription) -> None:
    """Check the names of input files, and that the program and stdin are among them.

    A program that is no input file is one of the machine that runs the job: an absolute path, or a
    name without a slash.  It is not looked for on this machine's disk.
    """
    names = [file.name for file in job.inputs]
    _check_count("input", len(names), MOST_INPUTS)
    if twice := next((name for name, count in Counter(names).items() if count > 1), None):
        raise BadInput(f"input file {twice[:_MOST_TEXT]}: two have this name")
    if not job.executable:
        raise BadInput("the executable is missing")
    is_path = "/" in job.executable and not job.executable.startswith("/")
    if is_path and job.executable not in names:
        raise BadInput(f"executable {job.executable[:_MOST_TEXT]}: no input file has this name")
    if job.stdin and job.stdin not in names:
        raise BadInput(f"stdin {job.stdin[:_MOST_TEXT]}: no input file has this name")
    for name in names:
        file_name(name, "input file")
    _check_folders("input file", {*names})


def _check_outputs(job: JobDescription) -> None:
    _check_count("output", len(job.outputs), MOST_OUTPUTS)
    for stream, name in streams(job).items():
        file_name(name, stream)
    for name in job.outputs:
        if name != "/":  # all files
            file_name(_directory(name), "output file")
    outputs = {*job.outputs, *streams(job).values()}
    if renamed := next((name for name in outputs if "=" in name), None):
        raise BadInput(f"output file {renamed}: the name of an output must not contain =")
    _check_folders("output file", outputs)
    if part := next((name for name in outputs if f"{name}.part" in outputs), None):
        raise BadInput(
            f"output file {part}.part: {part} has this name while it is written; rename one"
        )


def _manifest(job: JobDescription) -> Manifest:
    """What the job's BOT will run, without its input files, which have not been sent yet."""
    usual = Resources()
    return Manifest(
        owner="",
        command=tuple(_command(job)),
        outputs=tuple(_outputs(job)),
        resources=Resources(
            cpus=job.slots,
            memory_mb=_memory_mb(job) or usual.memory_mb,
            disk_mb=job.disk_mb or usual.disk_mb,
            seconds=job.seconds or usual.seconds,
        ),
        environment=_environment(job),
    )


def _check_count(what: str, found: int, most: int) -> None:
    if found > most:
        raise BadInput(f"{found} {what} files, at most {most}")


def _check_folders(what: str, names: Set[str]) -> None:
    """Raise BadInput if a file would be the directory of another."""
    for name in sorted(names):
        folders = (name[:place] for place, letter in enumerate(name) if letter == "/")
        if folder := next((folder for folder in folders if folder in names), None):
            raise BadInput(f"{what} {name}: {folder} is a file, not a directory")


def submission_fields(job: JobDescription, id: str, folder: Path) -> dict[str, Any]:
    """Fields of the `gridbot.Submission` of a job whose files lie in `folder`.

    The job's id is the idempotency key: however often it is submitted, it is one BOT.
    """
    wanted = {
        "memory": _memory_mb(job),
        "disk": job.disk_mb,
        "time": job.seconds,
    }
    return {
        "command": _command(job),
        "name": (job.name or Path(job.executable).name)[:_MOST_TEXT],
        "inputs": [file.name for file in job.inputs],
        "outputs": _outputs(job),
        "stdin": job.stdin,
        "env": _environment(job),
        "cpus": job.slots,
        # What a program exits with is for its user to judge; what the machine broke is repeated.
        "exit_codes": "any",
        "max_failures": "100%",  # is not held: nobody would see that
        "idempotency_key": id,
        "base": folder,
        **{name: value for name, value in wanted.items() if value is not None},
    }


def _command(job: JobDescription) -> list[str]:
    is_sent = job.executable in (file.name for file in job.inputs)
    program = f"./{job.executable}" if is_sent else job.executable
    words = [literal(word) for word in (program, *job.arguments)]
    return [*_JOINED, *words] if is_joined(job) else words


def _memory_mb(job: JobDescription) -> int | None:
    """The memory of all slots."""
    return None if job.memory_mb is None else job.memory_mb * job.slots


def _environment(job: JobDescription) -> dict[str, str]:
    return {name: literal(value) for name, value in job.environment.items()}


def is_joined(job: JobDescription) -> bool:
    """Whether stdout and stderr are one file."""
    return bool(job.stdout) and job.stdout == job.stderr


def streams(job: JobDescription) -> dict[str, str]:
    """Which captured stream is which file of the job."""
    if is_joined(job):
        return {"stdout": job.stdout}
    return {
        stream: name for stream, name in zip(STREAMS, (job.stdout, job.stderr), strict=True) if name
    }


def _outputs(job: JobDescription) -> list[str]:
    """Files and patterns; the streams come under their own names, and are named when they do."""
    files = [name for name in dict.fromkeys(job.outputs) if name not in (job.stdout, job.stderr)]
    patterns = [f"{_directory(name)}/*".lstrip("/") if name.endswith("/") else name
                for name in files]  # fmt: skip
    return [*patterns, *(streams(job) or {"stdout": ""})]


def _directory(name: str) -> str:
    return name.rstrip("/")
