"""Files that all jobs of a submission share: inputs, program, what environments are made of."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gridbot.api.errors import BadInput
from gridbot.api.inputs import (
    SharedFile,
    StoredFile,
    archives,
    local_file,
    program_spec,
    shared_file,
)
from gridbot.api.packing import is_conda_pack, unpacked_size
from gridbot.api.specs import InputSpec, SourcedSpec, Spec, name_there, placeholders_in, specs_of
from gridbot_client.protocol.software import SIF, Unpacked, covered

# A first argument that ends so is a program of an interpreter.
_SCRIPTS = (".jl", ".js", ".pl", ".py", ".r", ".rb", ".sh")

if TYPE_CHECKING:
    from gridbot.api.submission import Submission


@dataclass(frozen=True)
class SharedFiles:
    """The files, notes for the user, and which of them are what."""

    files: Sequence[SharedFile]
    notes: Sequence[str]
    archives: Mapping[str, Unpacked]
    requirements: str
    conda_pack: str
    image: str


def shared_files(
    submission: Submission,
    commands: Sequence[Sequence[str]],
    specs: Sequence[Spec],
    stored: Sequence[StoredFile],
) -> SharedFiles:
    """Find them.  Raises BadInput."""
    base = submission.base
    files: list[SharedFile] = []
    notes = _programs_and_inputs(base, commands, specs, files)
    files += stored
    found = archives(files)
    requirements = _added(submission.requirements, base, files, "requirements")
    conda_pack = _added(submission.conda_pack, base, files, "conda_pack")
    if conda_pack:
        found[conda_pack] = unpacked_size(base / submission.conda_pack)
    image = str(submission.image)
    if (base / image).is_file():
        image = _added(image, base, files, "image")
    elif image.endswith((".tar", SIF)) and image not in {file.ref.name for file in files}:
        raise BadInput(f"image {image}: there is no such file")
    names = [file.ref.name for file in files]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"two inputs are named {name}; rename one: --input FILE=NAME")
    for command in commands:
        notes += _notes(base, command, names, found, conda_pack)
    return SharedFiles(files, notes, found, requirements, conda_pack, image)


def _programs_and_inputs(
    base: Path,
    commands: Sequence[Sequence[str]],
    specs: Sequence[Spec],
    files: list[SharedFile],
) -> list[str]:
    """Add what is shared of the inputs, and the commands' own programs; return notes."""
    plain = [spec for spec in specs if not spec.placeholders]
    found = (program_spec(command, base, specs) for command in commands)
    programs = {program.name: program for program in found if program}
    files += [
        shared_file(spec, base, executable=spec.name in programs or _called(spec, commands))
        for spec in plain
    ]
    names, notes = {spec.name for spec in plain}, []
    for name, program in programs.items():
        if name not in names:
            files.append(local_file(program, base, executable=True))
            whose = "all jobs" if len(commands) == 1 else "the jobs that run it"
            notes.append(f"{program.source} is uploaded as an executable input of {whose}")
    return notes


def _called(spec: Spec, commands: Sequence[Sequence[str]]) -> bool:
    """Whether a program comes from URLs, which tell no mode of a file."""
    started = {name_there(command[0]) for command in commands if "/" in command[0]}
    return isinstance(spec, SourcedSpec) and spec.name in started


def _added(path: str | Path, base: Path, files: list[SharedFile], option: str) -> str:
    """Name of the input that a file is, which is added if it is none yet; "" for no path."""
    if not path:
        return ""
    (spec,) = specs_of([path], base)
    if spec.placeholders or spec.is_folder or not isinstance(spec, InputSpec):
        raise BadInput(
            f"{option} {path}: it must be one file here, or the name of an input, for all jobs"
        )
    if spec.name not in {file.ref.name for file in files}:
        file = local_file(spec, base)
        files.append(replace(file, ref=replace(file.ref, executable=False)))
    return spec.name


def _notes(
    base: Path, command: Sequence[str], names: Sequence[str], found: Mapping[str, Unpacked],
    conda_pack: str,
) -> list[str]:  # fmt: skip
    """What is legal and hardly meant."""
    notes = []
    for place, part in enumerate(command[1:]):
        if (
            part in names
            or any(covered(name, [part]) for name in found)
            or placeholders_in((part,))
        ):
            continue
        if os.path.isfile(base / part):  # also of what can be no path: too long, or not ours to see
            notes.append(
                f"{part} is a file here but not an input; if jobs need it, add --input {part}"
            )
        elif place == 0 and part.lower().endswith(_SCRIPTS) and not part.startswith(("/", "-")):
            notes.append(f"{part} is neither a file here nor an input: jobs will not find it")
    for name in names:
        if name != conda_pack and name.endswith((".tar.gz", ".tgz")) and is_conda_pack(base / name):
            notes.append(
                f"{name} is an archive of conda-pack; to have its programs on the jobs' PATH:"
                f" --conda-pack {name}"
            )
    return notes
