"""Collects a replica's outputs, regular files by name or pattern, and the ends of its logs."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from gridbot_client.protocol.messages import (
    INLINE_OUTPUT_BYTES,
    LOG_TAIL_BYTES,
    MAX_OUTPUTS,
    Manifest,
    Output,
    ProtocolError,
    file_name,
)
from gridbot_client.work.slots import ReplicaSlot

# Small outputs beyond this sum are uploaded, so that the request stays small.
MOST_INLINE_BYTES = 256 * 1024
_STREAMS = ("stdout", "stderr")
_OPEN_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WILD = re.compile(r"[*?\[]")


class OutputError(Exception):
    """The outputs violate the manifest; `reason` is the replica's reason code."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def collect(slot: ReplicaSlot, manifest: Manifest, inputs: Collection[str]) -> tuple[Output, ...]:
    """Outputs that the manifest names; small ones with their content.  Raises OutputError.

    Links are never followed, in no part of a path, so a program cannot return files outside its
    directory.  A pattern may match nothing, and it does not match input files.
    """
    found = sorted(set(_found(slot, manifest.outputs, inputs)))
    if len(found) > MAX_OUTPUTS:
        raise OutputError("too_many_outputs", f"{len(found)} outputs, at most {MAX_OUTPUTS}\n")
    total = sum(path_of(slot, name).lstat().st_size for name in found)
    if total > manifest.max_output_bytes:
        raise OutputError(
            "output_too_big",
            f"outputs of {total} bytes in all, at most {manifest.max_output_bytes}\n",
        )
    inline = total <= MOST_INLINE_BYTES
    return tuple(_output(slot, name, inline) for name in found)


def path_of(slot: ReplicaSlot, name: str) -> Path:
    """Path of an output; `stdout` and `stderr` are the captured streams."""
    return {"stdout": slot.stdout, "stderr": slot.stderr}.get(name, slot.work / name)


def open_output(slot: ReplicaSlot, name: str) -> io.BufferedReader:
    """Open an output for reading.  Raises OSError if it is not a regular file of one name."""
    if name in _STREAMS:
        return _open_regular(path_of(slot, name))
    directory = os.open(slot.work, _OPEN_DIRECTORY)
    try:
        *parents, last = name.split("/")
        for parent in parents:
            below = os.open(parent, _OPEN_DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = below
        return _open_regular(last, directory)
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
    """True for a regular file; one with a second name may be a link to a file outside."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def _found(slot: ReplicaSlot, wanted: Sequence[str], inputs: Collection[str]) -> Iterator[str]:
    for pattern in wanted:
        if pattern in _STREAMS and _has_file(path_of(slot, pattern)):
            yield pattern
        elif _WILD.search(pattern):
            names = _matches(slot.work, pattern.split("/"))
            yield from (_usable(name) for name in names if name not in inputs)
        elif pattern not in _STREAMS and list(_matches(slot.work, pattern.split("/"))):
            yield _usable(pattern)
        else:
            raise OutputError(
                "missing_output",
                f"output {pattern!r} is missing or not a regular file of one name\n",
            )


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
    if not _WILD.search(pattern):
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
