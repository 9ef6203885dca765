"""From a job of a submit description to a BOT and a job in it.

Jobs that differ in values only are jobs of one growing BOT: arguments, variables, names of outputs
and the input that they read are placeholders there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gridbot.api.inputs import InputFile, LocalFile, local_file
from gridbot.api.specs import InputSpec
from gridbot.dag.run import requirements
from gridbot.dag.submit.errors import SubmitError
from gridbot.dag.submit.job import NULL, SubmitJob
from gridbot_client.protocol.messages import JobInput, Scalar

_SYSTEM = ("/bin/", "/sbin/", "/usr/", "/opt/", "/lib/")
_DEPTH = 6  # of folders in what a job brings
# Names of files of single jobs, at any depth.
JOB_INPUTS = tuple(JobInput("/".join("*" * n), executable=True) for n in range(1, _DEPTH + 1))
_DEFAULT_DISK_MB = 1024
_MOST_OUTPUT_MB = 1024


@dataclass(frozen=True)
class OutputPlace:
    """Where what a job returns goes, on this machine."""

    folder: str
    stdout: str = ""
    stderr: str = ""
    names: Mapping[str, str] | None = None  # of files that do not keep their names

    def document(self) -> list[Any]:
        """For the journal."""
        return [self.folder, self.stdout, self.stderr, dict(self.names or {})]

    def path(self, output: str) -> Path | None:
        """Where an output goes; None for one that nobody wants."""
        if output == "stdout":
            return Path(self.folder, self.stdout) if self.stdout else None
        if output == "stderr":
            return Path(self.folder, self.stderr) if self.stderr else None
        base = os.path.basename(output)
        renamed = (self.names or {}).get(output) or (self.names or {}).get(base)
        if renamed and renamed.endswith("/"):
            renamed += base
        return Path(self.folder, renamed or base)


@dataclass(frozen=True)
class Shape:
    """What a BOT's jobs have in common; equal shapes are one BOT."""

    fields: Mapping[str, Any]  # of the submission

    @property
    def key(self) -> str:
        """Names it, the same in each process."""
        text = json.dumps(self.fields, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class ShapedJob:
    """A job as it is appended."""

    shape: Shape
    values: Mapping[str, Scalar]
    files: Sequence[InputFile]
    destination: OutputPlace


class Shaper:
    """Makes jobs for the server; files are hashed once while they do not change."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], LocalFile] = {}

    def shaped(self, job: SubmitJob, folder: Path) -> ShapedJob:
        """The job of a description that stands in `folder`.  Raises BadInput."""
        home = folder / job.iwd
        values: dict[str, Scalar] = {f"a{n}": word for n, word in enumerate(job.arguments)}
        environment = {}
        for name, value in sorted(job.environment.items()):
            values[f"e_{name}"] = value
            environment[name] = f"{{e_{name}}}"
        files = list(self._inputs(job, home))
        program = self._program(job, folder)
        stdin = ""
        if job.input != NULL:
            read = self._file(home / job.input, os.path.basename(job.input))
            files = [file for file in files if file.ref.name != read.ref.name] + [read]
            values["stdin"], stdin = read.ref.name, "{stdin}"
        outputs = self._outputs(job, values)
        shape = Shape(
            {
                "command": [program, *(f"{{a{n}}}" for n in range(len(job.arguments)))],
                "program": self._hash_of_program(job, folder),
                "env": environment,
                "stdin": stdin,
                "outputs": outputs,
                **_limits(job),
                "policy": requirements.policy_of(job.requirements, job.rank, job.attributes),
                "image": job.image.removeprefix("docker://"),
            }
        )
        return ShapedJob(shape, values, files, self._destination(job, home))

    def _program(self, job: SubmitJob, folder: Path) -> str:
        if not job.executable:
            raise SubmitError("executable: a container needs a program to run")
        if not _is_sent(job):
            return job.executable
        path = folder / job.executable
        if not path.is_file():
            raise SubmitError(f"executable: {job.executable} does not exist")
        return f"./{path.name}"

    def _hash_of_program(self, job: SubmitJob, folder: Path) -> list[str]:
        """Path and content of the program, which all jobs of the BOT share."""
        if not _is_sent(job):
            return []
        path = folder / job.executable
        return [str(path.parent), self._file(path, path.name).ref.sha256]

    def _inputs(self, job: SubmitJob, home: Path) -> Iterator[LocalFile]:
        found: dict[str, LocalFile] = {}
        program = os.path.basename(job.executable) if _is_sent(job) else ""
        for item in job.transfer_input:
            if "://" in item:
                raise SubmitError(f"transfer_input_files: {item}: only files of this machine")
            for path, name in _below(home / item, item):
                if name != program:
                    found[name] = self._file(path, name)
        yield from found.values()

    def _file(self, path: Path, name: str) -> LocalFile:
        try:
            state = path.stat()
        except OSError as error:
            raise SubmitError(f"input {path}: {error.strerror}") from None
        key = (str(path), name, state.st_mtime_ns, state.st_size, state.st_ino, state.st_mode)
        if key not in self._known:
            self._known[key] = local_file(InputSpec(str(path), name), Path())
        return self._known[key]

    @staticmethod
    def _outputs(job: SubmitJob, values: dict[str, Scalar]) -> list[str]:
        outputs = ["stdout"] * (job.output != NULL) + ["stderr"] * (job.error != NULL)
        if job.transfer_output is None:
            return [*outputs, "*"]
        for number, name in enumerate(job.transfer_output):
            values[f"o{number}"] = name.rstrip("/")
            outputs.append(f"{{o{number}}}/*" if name.endswith("/") else f"{{o{number}}}")
        return outputs or ["stdout"]

    @staticmethod
    def _destination(job: SubmitJob, home: Path) -> OutputPlace:
        names = job.output_names
        for name in (job.output, job.error, *names.values()):
            if "://" in name:
                raise SubmitError(f"{name}: outputs come back to this machine only")
            parent = (home / name).parent
            if name != NULL and not parent.is_dir():
                raise SubmitError(f"output {name}: there is no folder {parent}")
        return OutputPlace(
            str(home),
            "" if job.output == NULL else job.output,
            "" if job.error == NULL else job.error,
            names,
        )


def submission_of(shape: Shape) -> dict[str, Any]:
    """Fields of the submission of a shape's BOT."""
    fields = dict(shape.fields)
    program = fields.pop("program")
    return {
        **fields,
        "base": Path(program[0]) if program else Path(),
        "growing": True,
        "job_inputs": JOB_INPUTS,
        "max_failures": "100%",
    }


def _is_sent(job: SubmitJob) -> bool:
    """Whether the program goes along; programs of the system are where they are."""
    return job.transfer_executable and not job.executable.startswith(_SYSTEM)


def _limits(job: SubmitJob) -> dict[str, Any]:
    disk = _DEFAULT_DISK_MB if job.disk_kib is None else max(64, -(-job.disk_kib // 1024))
    retries = job.max_retries or 0
    found: dict[str, Any] = {
        "cpus": job.cpus,
        "disk": disk,
        "max_output": min(disk, _MOST_OUTPUT_MB),
        "gpus": job.gpus,
        "attempts": retries + 1,
        "exit_codes": [0] if retries else "any",
    }
    if job.memory_mb:
        found["memory"] = job.memory_mb
    return found


def _below(path: Path, item: str) -> Iterator[tuple[Path, str]]:
    """Files that an item of transfer_input_files brings, and their names there."""
    if not path.is_dir():
        yield path, os.path.basename(item)
        return
    # With a slash behind it the folder's content is meant, and not the folder.
    prefix = "" if item.endswith("/") else f"{path.name}/"
    for below in sorted(path.rglob("*")):
        if below.is_file():
            yield below, prefix + str(below.relative_to(path))


def destination_of(document: Sequence[Any]) -> OutputPlace:
    """A destination from the journal."""
    folder, stdout, stderr, names = document
    return OutputPlace(folder, stdout, stderr, names)
