"""Input files: finding and hashing them, and uploading those that the server lacks."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gridbot import reliable
from gridbot.api.connection import Connection
from gridbot.api.errors import BadInput, InputUnreadable, NotFound, Refused
from gridbot.api.packing import PackedFolder, pack
from gridbot.api.results import OutputFile
from gridbot.api.specs import InputSpec, SourcedSpec, Spec, name_there, placeholders_in
from gridbot_client.protocol import template
from gridbot_client.protocol.messages import FileRef, JobInput, ProtocolError, Scalar, file_name
from gridbot_client.protocol.software import Unpacked, covered

CHUNK_BYTES = 8 * 1024 * 1024  # of one request; lost when a connection breaks

_SHA256 = re.compile(r"[0-9a-f]{64}")
_ANY = re.compile(r"[^/]+")  # a part of a path

Progress = Callable[[str, int, int], None]  # label, done, total


@dataclass(frozen=True)
class LocalFile:
    """A file on this machine, and its name and hash as a job's input."""

    path: Path
    ref: FileRef

    def part(self, offset: int, most: int) -> bytes:
        """What the next request brings of the content, from `offset` on."""
        with self.path.open("rb") as content:
            content.seek(offset)
            return content.read(min(most, self.ref.size - offset))


@dataclass(frozen=True)
class StoredFile:
    """An output of a job that the server has: it is not sent again, but for a small one.

    Those are no files at the server; they came with their results.
    """

    output: OutputFile
    ref: FileRef

    @property
    def path(self) -> str:
        """Its name, for messages."""
        return self.output.name

    def part(self, offset: int, most: int) -> bytes:
        """The rest of a small content from `offset` on.  Raises Refused for any other."""
        gone = f"input {self.ref.name}: the server does not have this output any more"
        if not (self.output.is_here or self.output.came_inline):
            raise Refused(gone)
        try:
            return self.output.read()[offset : offset + most]
        except NotFound:
            raise Refused(gone) from None


@dataclass(frozen=True)
class SourcedFile:
    """A file that clients fetch from its sources; it is not sent to the server."""

    urls: tuple[str, ...]
    ref: FileRef


InputFile = LocalFile | PackedFolder | StoredFile  # which the server gets, unless it has it
SharedFile = InputFile | SourcedFile
Input = str | Path | OutputFile  # `FILE`, `FILE=NAME`, URLs, or an output of another job


def program_spec(command: Sequence[str], base: Path, specs: Sequence[Spec]) -> InputSpec | None:
    """The command's program if it has a relative path such as `./prog`, else None.

    Raises BadInput if it is no file here and no input brings it.
    """
    program = command[0]
    if "/" not in program or program.startswith("/") or placeholders_in((program,)):
        return None
    name = name_there(program)
    if any(spec.is_folder and covered(spec.name, [name]) for spec in specs):
        return None
    if (base / program).is_file():
        return InputSpec(program, name)
    if not any(_brings(spec, name) for spec in specs):
        raise BadInput(f"the program {program} is no file here, and no input has its name")
    return None


def _brings(spec: Spec, name: str) -> bool:
    return spec.name == name or bool(spec.placeholders)


def shared_file(spec: Spec, base: Path, executable: bool = False) -> SharedFile:
    """The file or directory of a spec, for all jobs.  Raises BadInput."""
    if isinstance(spec, SourcedSpec):
        return SourcedFile(spec.urls, spec.ref(executable=executable))
    if not spec.is_folder:
        return local_file(spec, base, executable)
    try:
        return pack(base / spec.source, file_name(spec.name, "input"))
    except ProtocolError as error:
        raise BadInput(f"{error}; give it another: --input {spec.source}=NAME") from None


def to_send(files: Iterable[SharedFile]) -> list[InputFile]:
    """Those that the server must have."""
    return [file for file in files if not isinstance(file, SourcedFile)]


def sources_of(files: Iterable[SharedFile]) -> dict[str, tuple[str, ...]]:
    """Where clients fetch the others, by name."""
    return {file.ref.name: file.urls for file in files if isinstance(file, SourcedFile)}


def archives(files: Iterable[SharedFile]) -> dict[str, Unpacked]:
    """Which of the inputs are directories."""
    return {file.ref.name: file.unpacked for file in files if isinstance(file, PackedFolder)}


def local_file(spec: InputSpec, base: Path, executable: bool = False) -> LocalFile:
    """Hash the file of a spec without placeholders.  Raises BadInput."""
    path = base / spec.source
    if spec.is_folder:
        raise BadInput(f"input {spec.source} is a directory, which only all jobs can share")
    reliable.check()  # between files, which may be many and large
    try:
        name = file_name(spec.name, "input")
        sha256, size = _hash(path)
        executable = executable or os.access(path, os.X_OK)
    except OSError as error:
        raise InputUnreadable(f"input {spec.source}: {error.strerror}") from None
    except ProtocolError as error:
        raise BadInput(str(error)) from None
    return LocalFile(path, FileRef(name, sha256, size, executable))


def split(inputs: Sequence[Input]) -> tuple[list[str | Path], list[StoredFile]]:
    """Paths among inputs, and outputs of other jobs.  Raises BadInput."""
    paths = [item for item in inputs if not isinstance(item, OutputFile)]
    stored = [item for item in inputs if isinstance(item, OutputFile)]
    try:
        return paths, [
            StoredFile(item, FileRef(file_name(item.name, "input"), item.sha256, item.size))
            for item in stored
        ]
    except ProtocolError as error:
        raise BadInput(str(error)) from None


class JobInputs:
    """Finds the files of single jobs; each distinct file is hashed once."""

    def __init__(
        self, specs: Sequence[Spec], base: Path, stored: Sequence[StoredFile] = ()
    ) -> None:
        self._specs = specs
        self._base = base
        self.stored = stored  # files that each of the jobs has beside
        self.files: dict[InputSpec, LocalFile] = {}
        self.names: set[JobInput] = set()  # patterns of the names, with * for values

    def expect_any(self) -> None:
        """Let the names of files of jobs that come later be any that the specs can give."""
        for spec in self._specs:
            anything = dict.fromkeys(spec.placeholders, "*")
            (pattern,) = template.fill((spec.name,), dict.fromkeys(anything, "text"), anything)
            self.names.add(JobInput(pattern))

    def of(self, row: Mapping[str, Scalar]) -> Iterator[FileRef]:
        """Files of the job with the values `row`.  Raises BadInput."""
        yield from (file.ref for file in self.stored)
        for spec in self._specs:
            filled = spec.filled(row)
            if isinstance(filled, SourcedSpec):
                ref = filled.ref()
                self._allow(spec, row, ref)
                yield ref
                continue
            if filled not in self.files:
                self.files[filled] = local_file(filled, self._base)
                self._allow(spec, row, self.files[filled].ref)
            yield self.files[filled].ref

    def _allow(self, spec: Spec, row: Mapping[str, Scalar], ref: FileRef) -> None:
        """Take in the pattern of a name."""
        values = {column: _ANY.sub("*", str(value)) for column, value in row.items()}
        (pattern,) = template.fill((spec.name,), dict.fromkeys(row, "text"), values)
        self.names.add(JobInput(pattern, ref.executable))

    @property
    def sources(self) -> dict[str, tuple[str, ...]]:
        """Where clients fetch files, by name; both with placeholders."""
        return {spec.name: spec.urls for spec in self._specs if isinstance(spec, SourcedSpec)}


def upload(connection: Connection, files: Sequence[InputFile], progress: Progress) -> None:
    """Upload the files that the server lacks; interrupted uploads continue."""
    contents = {file.ref.sha256: file for file in files}
    total = sum(file.ref.size for file in contents.values())
    sent = 0
    for file in contents.values():
        for offset in _upload(connection, file):
            progress("uploading files", sent + offset, total)
        sent += file.ref.size


def _upload(connection: Connection, file: InputFile) -> Iterator[int]:
    """Upload one file in chunks; yield the number of bytes that the server has."""
    url = f"/blobs/{file.ref.sha256}?size={file.ref.size}"
    head = connection.request("HEAD", url)
    offset = int(head.headers.get("Upload-Offset", 0))
    complete = head.headers.get("Upload-Complete") == "?1"
    goes_elsewhere = head.headers.get("Upload-Redirect") == "?1"
    yield offset
    while not complete:
        part = b"" if goes_elsewhere else file.part(offset, CHUNK_BYTES)
        answer = connection.request(
            "PUT", f"{url}&offset={offset}", data=part, accept=(307, 409, 422)
        )
        if there := connection.redirection(answer):
            connection.elsewhere("PUT", there, data=file.part(offset, there.size))
            offset += there.size
            yield offset
            continue
        if answer.status_code == 422:
            raise InputUnreadable(f"input {file.path}: changed during the upload; submit again")
        body = answer.json()
        if "offset" not in body:
            raise Refused(f"input {file.path}: {body.get('detail', 'refused by the server')}")
        offset, complete = body["offset"], body.get("complete", False)
        yield offset


def sha256_of(file: str | Path) -> str:
    """SHA-256 in hex of a file, or the one that is given.  Raises BadInput."""
    if isinstance(file, str) and _SHA256.fullmatch(file):
        return file
    try:
        return _hash(Path(file))[0]
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}; give a file, or a SHA-256 in hex") from None


def _hash(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return digest.hexdigest(), file.tell()
