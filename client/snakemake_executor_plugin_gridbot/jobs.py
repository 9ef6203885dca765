"""What a job of Snakemake runs, brings and leaves behind, as a job of a BOT."""

from __future__ import annotations

import errno
import os
import shlex
import tarfile
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gridbot.api.errors import BadInput
from gridbot.api.inputs import InputFile, LocalFile, local_file
from gridbot.api.results import OutputFile
from gridbot.api.specs import InputSpec
from gridbot_client.protocol.messages import Scalar

# What is wrong with names in an archive, now and whenever it is tried again.
_OF_NAMES = (
    errno.EEXIST, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR,
)  # fmt: skip
OUTPUTS = "gridbot-outputs"  # folder of what comes back, each under its number


@dataclass(frozen=True)
class LeftFile:
    """A file or a folder that a job leaves behind: an output, a log, a benchmark."""

    name: str
    is_folder: bool

    def copied(self, to: str) -> str:
        """Shell text that collects it if it is a folder, or a link."""
        here = shlex.quote(f"./{self.name}")
        if self.is_folder:
            return f"if [ -d {here} ]; then tar -chf {to} -C {here} .; fi"
        return f"if [ -h {here} ]; then cp -L {here} {to}; fi"

    def moved(self, to: str) -> str:
        """Shell text that collects it if it is a file, once links to it were copied."""
        here = shlex.quote(f"./{self.name}")
        return f"if [ ! -h {here} ] && [ -f {here} ]; then mv {here} {to}; fi"


@dataclass(frozen=True)
class LeftFiles:
    """All that a job leaves behind, below `base` on this machine."""

    base: Path
    files: Sequence[LeftFile]

    def script(self, command: str) -> str:
        """Shell text that runs a command and collects them; it exits as the command does."""
        places = [(file, f"{OUTPUTS}/{number}") for number, file in enumerate(self.files)]
        return "\n".join(
            [
                f"({command})", "code=$?", f"mkdir {OUTPUTS}",
                *(file.copied(place) for file, place in places),
                *(file.moved(place) for file, place in places if not file.is_folder),
                "exit $code",
            ]
        )  # fmt: skip

    def path(self, output: str) -> Path | None:
        """Where an output goes; None for one that is not expected."""
        file = self._file(output)
        return None if file is None else self.base / file.name

    def save(self, output: OutputFile) -> None:
        """Put an output to its place; its time is now, by the clock of this machine.

        Raises BadInput for a folder that is none.
        """
        file = self._file(output.name)
        if file is None:
            return
        path = self.base / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_folder:
            output.save(path)
            return
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".gridbot-") as made:
            unpack(output.save(Path(made, "packed")), path)

    def _file(self, output: str) -> LeftFile | None:
        folder, _, number = output.rpartition("/")
        if folder != OUTPUTS or not number.isdecimal() or int(number) >= len(self.files):
            return None
        return self.files[int(number)]


def unpack(archive: Path, to: Path) -> None:
    """Unpack a folder that a host has packed; only files and folders below `to`.

    Raises BadInput for one that is no archive, or leads elsewhere.
    """
    to.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(archive, "r:") as packed:  # compressed, it might fill the disk
            for member in packed:
                if member.isreg() or member.isdir():
                    member.mtime = time.time()
                    packed.extract(member, to, filter="data")
    except (tarfile.TarError, ValueError) as error:
        raise _no_folder(to, error) from None
    except OSError as error:
        if error.errno in _OF_NAMES:
            raise _no_folder(to, error) from None
        raise  # of this machine, such as a full disk: it may be tried again


def _no_folder(to: Path, error: Exception) -> BadInput:
    return BadInput(f"{to}: what came back is no folder: {str(error)[:500]}")


@dataclass(frozen=True)
class SnakemakeJob:
    """A job as it is appended."""

    values: Mapping[str, Scalar]
    files: Sequence[InputFile]
    destination: LeftFiles


def left_by(job: Any, base: Path) -> LeftFiles:
    """What a job of Snakemake leaves behind.  Raises BadInput."""
    jobs = job.jobs if job.is_group() else [job]
    benchmarks = [one.benchmark for one in jobs if one.benchmark]
    found = {
        name_of(file): LeftFile(name_of(file), bool(getattr(file, "is_directory", False)))
        for file in (*job.output, *job.log, *benchmarks)
        if not getattr(file, "is_storage", False)
    }
    return LeftFiles(base, [*found.values()])


def brought_by(job: Any, base: Path, shared: Collection[str]) -> list[LocalFile]:
    """Input files of a job of Snakemake but for those that all jobs have.  Raises BadInput."""
    names = (name_of(file) for file in job.input if not getattr(file, "is_storage", False))
    files = dict.fromkeys(_below(names, base))
    return [local_file(InputSpec(name, name), base) for name in files if name not in shared]


def _below(names: Iterable[str], base: Path) -> Iterator[str]:
    """Files with these names, and those in folders with them."""
    for name in names:
        if not (base / name).is_dir():
            yield name
            continue
        for path in sorted((base / name).rglob("*")):
            if path.is_file():
                yield str(path.relative_to(base))


def name_of(file: object) -> str:
    """A file's name below the working directory.  Raises BadInput for one that is not there."""
    name = os.path.normpath(str(file))
    if os.path.isabs(name):
        name = os.path.relpath(name)
    if name.startswith(".."):
        raise BadInput(
            f"{file} is outside of the working directory, and hosts have only what lies in it"
        )
    return name


def limits_of(job: Any) -> dict[str, Any]:
    """Limits of a BOT by the resources of a job of Snakemake."""

    def resource(name: str) -> int:
        found = job.resources.get(name)
        return found if isinstance(found, int) else 0

    found: dict[str, Any] = {"cpus": max(1, job.threads), "gpus": resource("gpu")}
    if memory := resource("mem_mb"):
        found["memory"] = memory
    if disk := resource("disk_mb"):
        found["disk"] = found["max_output"] = disk
    if minutes := resource("runtime"):
        found["time"] = 60.0 * minutes
    return found
