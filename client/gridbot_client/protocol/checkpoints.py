"""Checkpoints: what a manifest says of them, and the form in which one is kept and sent.

A program that has saved its files exits with a certain code, and is started again with them, on the
same machine or on another one.  The contract is that of HTCondor's self-checkpointing jobs
(`checkpoint_exit_code`, `transfer_checkpoint_files`).

A packed checkpoint is a line of JSON, `{"files": [[name, size], …], "id": …}`, and then the files'
bytes.  It comes from other machines: names are those that the manifest allows, sizes are bounded.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from gridbot_client.protocol import fields
from gridbot_client.protocol.fields import MAX_BIGINT, STREAMS, ProtocolError, file_name
from gridbot_client.protocol.programs import MAX_PROGRAMS
from gridbot_client.protocol.software import covered

EXIT_CODE = 85  # HTCondor's convention
EVERY_SECONDS = 600.0
MAX_FILES = 32
_MAX_HEADER_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class CheckpointRule:
    """Files that a program saves, the code with which it then exits, and how often it should."""

    files: tuple[str, ...]
    exit_code: int = EXIT_CODE
    every: float = EVERY_SECONDS


class PackedFile(NamedTuple):
    """A file of a packed checkpoint."""

    name: str
    size: int


def read_rule(raw: Mapping[str, Any]) -> CheckpointRule | None:
    """Rule of a manifest, if it has one.  Raises ProtocolError."""
    if raw.get("checkpoint") is None:
        return None
    item = fields.mapping(raw["checkpoint"], "checkpoint")
    names = fields.listing(item, "files", MAX_FILES)
    files = tuple(file_name(name, "checkpoint.files") for name in names)
    if not files or len(set(files)) < len(files):
        raise ProtocolError("checkpoint.files: expected names of files, none of them twice")
    for number, name in enumerate(files):
        if other := covered(name, [*STREAMS, *files[:number]]):
            raise ProtocolError(
                f"checkpoint.files: {name} and {other} would be in each other's way"
            )
    rule = CheckpointRule(
        files,
        fields.integer(item, "exit_code", 1, 255, EXIT_CODE),
        fields.number(item, "every", 1.0, 86_400.0, EVERY_SECONDS),
    )
    _check_rest(rule, raw)
    return rule


def _check_rest(rule: CheckpointRule, raw: Mapping[str, Any]) -> None:
    """Make sure that a checkpoint goes with the rest of its manifest."""
    codes = raw.get("exit_codes", [0])
    if isinstance(codes, list) and rule.exit_code in codes:
        raise ProtocolError(f"checkpoint.exit_code: {rule.exit_code} is one of exit_codes")
    if raw.get("resident"):
        raise ProtocolError("checkpoint: a program that stays for further jobs has none")
    if raw.get("together", 1) != 1:
        raise ProtocolError("checkpoint: jobs that run together begin anew together, and have none")
    if taken := replaced(rule, _given(raw)):
        raise ProtocolError(
            f"checkpoint.files: {taken} would replace an input or the command, or lie in one"
        )


def _given(raw: Mapping[str, Any]) -> Iterator[str]:
    for item in raw.get("inputs", []):
        yield str(fields.mapping(item, "file").get("name"))
    rows = fields.listing(raw, "programs", MAX_PROGRAMS) if "programs" in raw else []
    for row in [raw, *rows]:
        for word in fields.listing(fields.mapping(row, "programs"), "command", 1000)[:1]:
            yield posixpath.normpath(str(word))


def replaced(rule: CheckpointRule, names: Iterable[str]) -> str:
    """The first of some files that a checkpoint's would replace, or lie in; or ""."""
    return next((name for name in names if covered(name, [*rule.files, *STREAMS])), "")


def pack(id: str, files: Sequence[tuple[str, int, BinaryIO]], target: BinaryIO) -> None:
    """Write files, given with their names and sizes.  Raises OSError if one is shorter by now.

    With an `id` that is by chance, no other file is the same: it can go when the checkpoint goes.
    """
    header = {"files": [[name, size] for name, size, _ in files], "id": id}
    target.write(json.dumps(header, separators=(",", ":")).encode() + b"\n")
    for name, size, source in files:
        for chunk in _chunks(source, size):
            target.write(chunk)
            size -= len(chunk)
        if size:
            raise OSError(f"{name} became shorter while it was saved")


def unpack(source: BinaryIO, size: int, allowed: Collection[str]) -> tuple[PackedFile, ...]:
    """Read the names and sizes of a packed checkpoint of `size` bytes; its files follow.

    Raises ProtocolError unless the names are among those allowed and the sizes come to `size`.
    """
    found = read_header(source)
    names = [file.name for file in found]
    if not set(names) <= set(allowed):
        raise ProtocolError(f"checkpoint: its files are {names}, not some of {sorted(allowed)}")
    if (there := source.tell() + sum(file.size for file in found)) != size:
        raise ProtocolError(f"checkpoint: {size} bytes, its first line says {there}")
    return found


def read_header(source: BinaryIO) -> tuple[PackedFile, ...]:
    """Read the first line of a packed checkpoint, as far as it says itself.

    Raises ProtocolError.
    """
    header = source.readline(_MAX_HEADER_BYTES)
    if not header.endswith(b"\n"):
        raise ProtocolError("checkpoint: its first line is too long")
    raw = fields.mapping(fields.parse(header), "checkpoint")
    found = tuple(map(_packed_file, fields.listing(raw, "files", MAX_FILES + len(STREAMS))))
    if len({file.name for file in found}) < len(found):
        raise ProtocolError("checkpoint: two of its files have one name")
    return found


def copied(source: BinaryIO, file: PackedFile, target: BinaryIO) -> None:
    """Copy the next file of a packed checkpoint.  Raises ProtocolError if it is cut off."""
    left = file.size
    for chunk in _chunks(source, left):
        target.write(chunk)
        left -= len(chunk)
    if left:
        raise ProtocolError(f"checkpoint: {file.name} is cut off")


def _packed_file(raw: object) -> PackedFile:
    if isinstance(raw, list) and len(raw) == 2 and type(raw[1]) is int:
        name, size = raw
        if 0 <= size <= MAX_BIGINT:
            return PackedFile(file_name(name, "checkpoint.files"), size)
    raise ProtocolError(f"checkpoint.files: expected [name, size], got {fields.kind(raw)}")


def _chunks(source: BinaryIO, size: int) -> Iterator[bytes]:
    while size and (chunk := source.read(min(size, 256 << 10))):
        size -= len(chunk)
        yield chunk
