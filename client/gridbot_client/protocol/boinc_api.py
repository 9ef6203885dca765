"""BOTs whose program is made for BOINC's API: what they may ask, and how a job's command is passed.

A BOINC client runs the program itself, in a slot directory: the files lie there under their names,
the command's words are passed as BOINC's clients split them.  What they cannot express is refused
where a BOT or a job is submitted, so that no reply to a client ever fails for it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gridbot_client.protocol.fields import ProtocolError, Scalar
from gridbot_client.protocol.template import fill

if TYPE_CHECKING:
    from gridbot_client.protocol.manifest import FileRef, Manifest

MAX_OUTPUTS = 32  # each is an upload of its own, which costs a client two seconds
# Clients split a command line into an array of 100 on their stack, from a buffer of 8 KB in older
# ones, and look at neither bound; they add words for a GPU.
MAX_WORDS = 64
MAX_COMMAND_LINE_BYTES = 7_900

# Plain in a command line, in XML, and in the client's own files, which escape nothing.
_WORD = re.compile(r"[ !#$%()*+,./0-9:;=?@A-Z\[\]^_`a-z{|}~-]+")
_WILD = re.compile(r"[*?\[{]")
# What client, library and diagnostics keep in a slot.
_OWN = re.compile(r"boinc_|trickle_|graphics_|init_data|std(in|out|err|outdae|errdae)\b|gb_", re.I)
# A slot is on the search path for libraries: what lies there may be run by its name alone.
_CODE = re.compile(r"\.(so|dll|dylib|exe|com|bat|cmd)(\.|$)", re.I)


def check_manifest(manifest: Manifest) -> None:
    """Make sure that BOINC clients can run the BOT's program itself.  Raises ProtocolError."""
    if asked := " and ".join(_beyond(manifest)):
        raise ProtocolError(f"boinc_api: BOINC clients do not know {asked}")
    if not manifest.platforms:
        raise ProtocolError("boinc_api: name the platforms for which the program is built")
    main = program(manifest)
    if same := next((ref for ref in others(manifest) if ref.sha256 == main.sha256), None):
        raise ProtocolError(f"boinc_api: input {same.name} is the program once more")
    if len(manifest.command) > MAX_WORDS:
        raise ProtocolError(f"boinc_api: {len(manifest.command)} words, at most {MAX_WORDS}")
    if len(manifest.outputs) > MAX_OUTPUTS:
        raise ProtocolError(f"boinc_api: {len(manifest.outputs)} outputs, at most {MAX_OUTPUTS}")
    for output in manifest.outputs:
        if output in ("stdout", "stderr"):
            raise ProtocolError(
                f"boinc_api: {output} is no output of BOINC programs (stderr is their log): name"
                " the files that they write"
            )
        if _WILD.search(output):
            raise ProtocolError(f"boinc_api: output {output} is no plain name")
    _check_names(_signed_names(manifest))


def check_job(manifest: Manifest, args: Mapping[str, Scalar], inputs: Sequence[FileRef]) -> None:
    """Make sure that BOINC clients can run a job.  Raises ProtocolError, or TemplateError.

    Nobody signs its own files, so they are neither in the place of a signed one, on any file
    system, nor such that a machine would run them.
    """
    command_line(manifest, args)
    for ref in inputs:
        if ref.executable or _CODE.search(ref.name):
            raise ProtocolError(
                f"boinc_api: input {ref.name} of a job could be run, and BOINC clients run signed"
                " files only: make it an input of the whole BOT"
            )
    _check_names([*_signed_names(manifest), *(ref.name for ref in inputs)])


def command_line(manifest: Manifest, args: Mapping[str, Scalar]) -> str:
    """Words behind the program's name, as clients split them.

    Raises ProtocolError for what they would split otherwise, TemplateError for a wrong value.
    """
    words = fill(manifest.command[1:], manifest.placeholders, args)
    for word in words:
        if not _WORD.fullmatch(word):
            raise ProtocolError(
                f"boinc_api: BOINC clients cannot pass the word {word!r} (letters, digits, spaces"
                " and !#$%()*+,-./:;=?@[]^_`{|}~, at least one): put it into an input file"
            )
    line = " ".join(f'"{word}"' if " " in word else word for word in words)
    if len(line) > MAX_COMMAND_LINE_BYTES:
        raise ProtocolError(
            f"boinc_api: the command line has {len(line)} bytes, BOINC clients are given at most"
            f" {MAX_COMMAND_LINE_BYTES}: put it into an input file"
        )
    return line


def program(manifest: Manifest) -> FileRef:
    """The input that the command names first.  Raises ProtocolError."""
    name = posixpath.normpath(manifest.command[0])
    for ref in manifest.inputs:
        if ref.name == name and ref.executable:
            return ref
    raise ProtocolError(
        f"boinc_api: the command begins with {manifest.command[0]}, which is no executable input"
    )


def others(manifest: Manifest) -> tuple[FileRef, ...]:
    """Inputs of the whole BOT beside its program."""
    main = program(manifest)
    return tuple(ref for ref in manifest.inputs if ref != main)


def _signed_names(manifest: Manifest) -> list[str]:
    return [*(ref.name for ref in manifest.inputs), *manifest.outputs]


def _check_names(names: Iterable[str]) -> None:
    """Make sure that each file has a name of its own in a slot, on any file system."""
    seen: dict[str, str] = {}
    for name in names:
        if "/" in name:
            raise ProtocolError(f"boinc_api: file {name}: a slot has no directories")
        if _OWN.match(name) or name.endswith("."):
            raise ProtocolError(f"boinc_api: file {name}: BOINC keeps such names for itself")
        if other := seen.get(name.lower()):
            raise ProtocolError(
                f"boinc_api: files {other} and {name} would be one where case does not matter"
            )
        seen[name.lower()] = name


def _beyond(manifest: Manifest) -> Iterator[str]:
    """What BOINC clients cannot do for a program that they run themselves."""
    asked = {
        "exit codes that are answers": manifest.exit_codes != (0,),
        "environment variables": bool(manifest.environment),
        "standard input": bool(manifest.stdin),
        "other names of outputs": bool(manifest.output_names),
        "directories": bool(manifest.archives),
        "an environment of Python": bool(manifest.requirements or manifest.conda_pack),
        "a container": bool(manifest.image),
        "programs that stay": bool(manifest.resident),
        "jobs that run together": manifest.together != 1,
        "these checkpoints (the program's own are kept)": manifest.checkpoint is not None,
        "inputs from URLs": bool(manifest.sources),
        "a sandbox": bool(manifest.walls.level),
    }
    return (name for name, is_asked in asked.items() if is_asked)
