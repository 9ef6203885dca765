"""What a description in one of ARC's languages asks for, and the BOT that it becomes.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gridbot.api.errors import BadInput
from gridbot.rsl.values import literal
from gridbot_client.protocol.fields import ProtocolError, file_name

QUEUE = "gridbot"  # the only one
GROUP = "arc"  # of the BOTs
# Files of one job; a replica has at most 256 outputs, its streams among them.
MOST_INPUTS, MOST_OUTPUTS = 1000, 250
MOST_CHARACTERS = 1 << 16  # of a description, as it is kept
_MOST_TEXT = 200
# The program of a job whose streams are one file.
_JOINED = ("sh", "-c", 'exec "$0" "$@" 2>&1')
_STREAMS = ("stdout", "stderr")


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


def checked(job: JobDescription) -> JobDescription:
    """The job, if it can be run here.  Raises BadInput that names what cannot.

    Its program is an input, by the name of that, or one of the machine that runs the job: a path
    from /, or a name alone.  Neither of those is looked for on this machine's disk.
    """
    if not job.executable:
        raise BadInput("the executable is missing")
    if job.queue not in ("", QUEUE):
        raise BadInput(f"queue {job.queue[:_MOST_TEXT]}: there is one here, {QUEUE}")
    names = [file.name for file in job.inputs]
    for what, found, most in (("input", names, MOST_INPUTS), ("output", job.outputs, MOST_OUTPUTS)):
        if len(found) > most:
            raise BadInput(f"{len(found)} {what} files, at most {most}")
    if twice := next((name for name, count in Counter(names).items() if count > 1), None):
        raise BadInput(f"input file {twice[:_MOST_TEXT]}: two have this name")
    executable = job.executable.removeprefix("./")
    if "/" in job.executable and not job.executable.startswith("/") and executable not in names:
        raise BadInput(f"executable {job.executable[:_MOST_TEXT]}: no input file has this name")
    if job.stdin and job.stdin not in names:
        raise BadInput(f"stdin {job.stdin[:_MOST_TEXT]}: no input file has this name")
    try:
        for name in names:
            file_name(name, "input file")
        for stream, name in streams(job).items():
            file_name(name, stream)
        for name in job.outputs:
            if name != "/":  # all files
                file_name(_directory(name), "output file")
    except ProtocolError as error:
        raise BadInput(str(error)) from None
    outputs = {*job.outputs, *streams(job).values()}
    if renamed := next((name for name in outputs if "=" in name), None):
        raise BadInput(f"output file {renamed}: the name of an output has no = here")
    _check_folders("input file", {*names})
    _check_folders("output file", outputs)
    if part := next((name for name in outputs if f"{name}.part" in outputs), None):
        raise BadInput(f"output file {part}.part: {part} is written under this name; rename one")
    return replace(job, executable=executable)


def _check_folders(what: str, names: Set[str]) -> None:
    """Raise BadInput if a file would be the directory of another."""
    for name in sorted(names):
        folders = (name[:place] for place, letter in enumerate(name) if letter == "/")
        if folder := next((folder for folder in folders if folder in names), None):
            raise BadInput(f"{what} {name}: {folder} is a file, too, and no directory")


def submission_fields(job: JobDescription, id: str, folder: Path) -> dict[str, Any]:
    """Fields of the `gridbot.Submission` of a job whose files lie in `folder`.

    The job's id is the idempotency key: however often it is submitted, it is one BOT.
    """
    sent = [file.name for file in job.inputs]
    program = f"./{job.executable}" if job.executable in sent else job.executable
    words = [literal(word) for word in (program, *job.arguments)]
    wanted = {
        "memory": None if job.memory_mb is None else job.memory_mb * job.slots,
        "disk": job.disk_mb,
        "time": job.seconds,
    }
    return {
        "command": [*_JOINED, *words] if is_joined(job) else words,
        "name": (job.name or Path(job.executable).name)[:_MOST_TEXT],
        "inputs": sent,
        "outputs": _outputs(job),
        "stdin": job.stdin,
        "env": {name: literal(value) for name, value in job.environment.items()},
        "cpus": job.slots,
        # What a program exits with is for the scientist; a run that the machine broke is repeated.
        "exit_codes": "any",
        "max_failures": "100%",  # is not held: nobody would see that
        "group": GROUP,
        "idempotency_key": id,
        "base": folder,
        **{name: value for name, value in wanted.items() if value is not None},
    }


def is_joined(job: JobDescription) -> bool:
    """Whether stdout and stderr are one file."""
    return bool(job.stdout) and job.stdout == job.stderr


def streams(job: JobDescription) -> dict[str, str]:
    """Which captured stream is which file of the job."""
    if is_joined(job):
        return {"stdout": job.stdout}
    return {
        stream: name
        for stream, name in zip(_STREAMS, (job.stdout, job.stderr), strict=True)
        if name
    }


def _outputs(job: JobDescription) -> list[str]:
    """Files and patterns; the streams come under their own names, and are named when they do."""
    files = [name for name in dict.fromkeys(job.outputs) if name not in (job.stdout, job.stderr)]
    patterns = [f"{_directory(name)}/*".lstrip("/") if name.endswith("/") else name
                for name in files]  # fmt: skip
    return [*patterns, *(streams(job) or {"stdout": ""})]


def _directory(name: str) -> str:
    return name.rstrip("/")
