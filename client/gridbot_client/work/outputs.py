"""Collects a replica's outputs, regular files by name or pattern, and the ends of its logs."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO

from gridbot_client.protocol.fields import STREAMS
from gridbot_client.protocol.messages import (
    INLINE_OUTPUT_BYTES,
    LOG_TAIL_BYTES,
    MAX_OUTPUTS,
    Output,
    ProtocolError,
    file_name,
)
from gridbot_client.protocol.output_names import NamedOutput, is_pattern
from gridbot_client.work.slots import ReplicaSlot

# Small outputs beyond this sum are uploaded, so that the request stays small.
MOST_INLINE_BYTES = 256 * 1024
_OPEN_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OutputError(Exception):
    """The outputs violate the manifest; `reason` is the replica's reason code."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def collect(
    slot: ReplicaSlot, wanted: Sequence[NamedOutput], most: int, inputs: Collection[str]
) -> tuple[Output, ...]:
    """Outputs that are wanted, at most so many bytes; small ones with their content.

    Raises OutputError.

    Links are never followed, in no part of a path, so a program cannot return files outside its
    directory.  A pattern may match nothing, and it does not match input files.  What comes back
    under another name gets that name in the directory, before patterns are matched.
    """
    exact = [output for output in wanted if not is_pattern(output.found)]
    found = {_found(slot, output) for output in exact}
    for output in wanted:
        if is_pattern(output.found):
            names = _matches(slot.work, output.found.split("/"))
            found |= {_usable(name) for name in names if name not in inputs}
    return _read(slot, sorted(found), most)


def _read(slot: ReplicaSlot, found: Sequence[str], most: int) -> tuple[Output, ...]:
    if len(found) > MAX_OUTPUTS:
        raise OutputError("too_many_outputs", f"{len(found)} outputs, at most {MAX_OUTPUTS}\n")
    total = sum(path_of(slot, name).lstat().st_size for name in found)
    if total > most:
        detail = f"outputs of {total} bytes in all, at most {most}\n"
        raise OutputError("output_too_big", detail)
    inline = total <= MOST_INLINE_BYTES
    return tuple(_output(slot, name, inline) for name in found)


def path_of(slot: ReplicaSlot, name: str) -> Path:
    """Path of an output; `stdout` and `stderr` are the captured streams."""
    return {"stdout": slot.stdout, "stderr": slot.stderr}.get(name, slot.work / name)


def open_output(slot: ReplicaSlot, name: str) -> io.BufferedReader:
    """Open an output for reading.  Raises OSError if it is not a regular file of one name."""
    if name in STREAMS:
        return _open_regular(path_of(slot, name))
    with _directory_of(slot, name) as (directory, last):
        return _open_regular(last, directory)


@contextmanager
def new_file(slot: ReplicaSlot, name: str) -> Iterator[BinaryIO]:
    """Make a file in the directory.  Raises OSError if something is there, or a link in the way."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with (
        _directory_of(slot, name, make=True) as (directory, last),
        open(os.open(last, flags, 0o600, dir_fd=directory), "wb") as file,
    ):
        yield file


@contextmanager
def _directory_of(slot: ReplicaSlot, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """A descriptor of the directory in which an output lies, and its name there.

    Raises OSError where a link is in the way.
    """
    directory = os.open(slot.work, _OPEN_DIRECTORY)
    try:
        *parents, last = name.split("/")
        for parent in parents:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(parent, 0o700, dir_fd=directory)
            below = os.open(parent, _OPEN_DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = below
        yield directory, last
    finally:
        os.close(directory)


def tail(path: Path, most: int = LOG_TAIL_BYTES) -> str:
    """Last `most` bytes of a log; empty if there is none."""
    try:
        with _open_regular(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most))
            return file.read(most).decode(errors="replace")
    except OSError:
        return ""


def _open_regular(path: Path | str, directory: int | None = None) -> io.BufferedReader:
    # Without O_NONBLOCK, opening a pipe in the place of a file would block for ever.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags, dir_fd=directory)
    if not _is_file(os.fstat(descriptor)):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file of one name", str(path))
    return open(descriptor, "rb")


def _is_file(found: os.stat_result) -> bool:
    """True for a regular file that its owner may read.

    One with a second name may be a link to a file outside.
    """
    return (
        stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and bool(found.st_mode & stat.S_IRUSR)
    )


def _found(slot: ReplicaSlot, output: NamedOutput) -> str:
    """The name of an output that is here; it gets that name now if it has another."""
    found = output.found
    if found in STREAMS and _has_file(path_of(slot, found)):
        return found
    if found in STREAMS or not list(_matches(slot.work, found.split("/"))):
        detail = f"output {found!r} is missing or not a regular file of one name, readable\n"
        raise OutputError("missing_output", detail)
    if output.name != found:
        try:
            _rename(slot, output)
        except OSError as error:
            detail = f"output {found!r} cannot become {output.name!r}: {error.strerror}\n"
            raise OutputError("bad_output_name", detail) from None
    return _usable(output.name)


def _rename(slot: ReplicaSlot, output: NamedOutput) -> None:
    with (
        _directory_of(slot, output.found) as (before, old),
        _directory_of(slot, output.name, make=True) as (after, new),
    ):
        os.rename(old, new, src_dir_fd=before, dst_dir_fd=after)


def _matches(directory: Path, pattern: Sequence[str]) -> Iterator[str]:
    """Yield names of regular files that match a pattern, part by part; follows no link."""
    first, rest = pattern[0], pattern[1:]
    for name in _entries(directory, first):
        path = directory / name
        if not rest and _has_file(path):
            yield name
        elif rest and path.is_dir() and not path.is_symlink():
            yield from (f"{name}/{below}" for below in _matches(path, rest))


def _has_file(path: Path) -> bool:
    try:
        return _is_file(path.lstat())
    except OSError:
        return False


def _entries(directory: Path, pattern: str) -> list[str]:
    if not is_pattern(pattern):
        return [] if pattern in ("", ".", "..") else [pattern]
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    return [name for name in names if name[0] != "." and fnmatchcase(name, pattern)]


def _usable(name: str) -> str:
    try:
        return file_name(name, "output")
    except ProtocolError as error:
        raise OutputError("bad_output_name", f"{error}\n") from None


def _output(slot: ReplicaSlot, name: str, inline: bool) -> Output:
    with open_output(slot, name) as file:
        size = os.fstat(file.fileno()).st_size
        if inline and size <= INLINE_OUTPUT_BYTES:
            content = file.read()
            return Output(name, hashlib.sha256(content).hexdigest(), len(content), content)
        return Output(name, hashlib.file_digest(file, "sha256").hexdigest(), size)
