"""Programs of a submission for several platforms: what is asked for, checked against the files."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gridbot.api.errors import BadInput
from gridbot.api.inputs import LocalFile, SharedFile
from gridbot.api.program import platforms_of
from gridbot.api.specs import Spec, specs_of
from gridbot_client.protocol.messages import ProtocolError
from gridbot_client.protocol.programs import HostProgram, selector


@dataclass(frozen=True)
class PlatformProgram:
    """What hosts of one kind run: a command, the submission's if empty, and inputs for them alone.

    Inputs are `FILE`, `FILE=NAME` or directories, as those of the submission.
    """

    command: Sequence[str] | str = ()
    inputs: Sequence[str | Path] = ()


class SplitProgram(NamedTuple):
    """A program whose command is split and whose inputs are parsed."""

    where: str
    command: list[str]
    specs: list[Spec]


def read_rows(
    programs: Mapping[str, PlatformProgram], default: Sequence[str] | str, base: Path
) -> list[SplitProgram]:
    """The table, in its order.  Raises BadInput that names the wrong row."""
    return [_row(where, program, default, base) for where, program in programs.items()]


def _row(
    where: str, program: PlatformProgram, default: Sequence[str] | str, base: Path
) -> SplitProgram:
    try:
        selector(where)
    except ProtocolError as error:
        raise BadInput(str(error)) from None
    try:
        command = split_command(program.command or default)
        specs = specs_of([*program.inputs], base)
    except BadInput as error:
        raise BadInput(f"programs: {where!r}: {error}") from None
    for spec in specs:
        if spec.placeholders:
            raise BadInput(
                f"programs: {where!r}: input {spec.source}: files of single jobs are for all hosts"
            )
    return SplitProgram(where, command, specs)


def split_command(command: Sequence[str] | str) -> list[str]:
    """Words of a command; a text is split by shell rules.  Raises BadInput."""
    try:
        words = (
            shlex.split(command) if isinstance(command, str) else [str(part) for part in command]
        )
    except ValueError as error:
        raise BadInput(f"the command {command!r} cannot be split: {error}") from None
    if not words or not words[0]:
        raise BadInput("no command given; write it after --, as in: gridbot submit -- ./prog {}")
    return words


def table_of(
    rows: Sequence[SplitProgram], shared: Sequence[Spec], files: Sequence[SharedFile]
) -> tuple[HostProgram, ...]:
    """Rows as the manifest has them; `shared` are inputs for all hosts, `files` all that there are.

    Raises BadInput for a program that was compiled for another platform.
    """
    for_all = {spec.name for spec in shared}
    found = {file.ref.name: file for file in files}
    made = []
    for row in rows:
        program = posixpath.normpath(row.command[0])
        _check_header(row.where, program, found.get(program))
        own = {spec.name for spec in row.specs} | ({program} & found.keys())
        made.append(HostProgram(row.where, tuple(row.command), tuple(sorted(own - for_all))))
    return tuple(made)


def _check_header(where: str, name: str, file: SharedFile | None) -> None:
    """Raise BadInput if a file's header names other platforms than its row."""
    platform = selector(where).platform.replace("android-", "linux-")  # both have ELF
    found = platforms_of(file.path) if isinstance(file, LocalFile) else ()
    if found and platform not in found:
        raise BadInput(f"programs: {where!r}: {name} is a program for {' and '.join(found)}")
