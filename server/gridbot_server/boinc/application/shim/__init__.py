"""The program that runs a BOT's command under a stock client: a shell script per manifest.

For Windows it is a program: see `windows`.

The script is `shim.sh` with the manifest's command, types, names and limits written into it as
quoted text, so that one signature covers all that may run.  A job's command line brings only the
values, encoded; BOINC would split them at white space and has no way to quote a quote.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import resources

from gridbot_client.protocol.fields import STREAMS
from gridbot_client.protocol.messages import (
    MAX_NAME_BYTES,
    Manifest,
    ProtocolError,
    ReplicaId,
    Scalar,
    file_name,
    manifest_id,
)
from gridbot_client.protocol.output_names import has_templates
from gridbot_client.protocol.template import TemplateError, fill, placeholders_in
from gridbot_server.signing.stock_clients import Unsuitable

# Where the script finds what the client puts into the slot, and where it leaves the outputs.
SIGNED_INPUT = "gb_{}"
OWN_INPUT = "gb_own_{}"
OUTPUT = "gb_out"

# Clients split the command line into an array of 100 on their stack, from a buffer of 8 KB in
# older ones, and look at neither bound: more would crash a volunteer's client.
_MOST_VALUES = 64
_MOST_COMMAND_LINE_BYTES = 7_900

_WILD = re.compile(r"[*?\[]")
_PART = r"[A-Za-z0-9_*?\[][A-Za-z0-9._+=@%*?\[\]!-]*"
_PATTERN = re.compile(rf"{_PART}(/{_PART})*")
_PLAIN = re.compile(r"[A-Za-z0-9_./:=,+@%-]*")
_ODD = re.compile(rb"[^A-Za-z0-9_./:=,+@%-]")
_MARK = "\x01"  # around a placeholder's name, while a command is taken apart
_BLOCKS_PER_MB = 2048  # of 512 bytes, as `ulimit -f` counts


def render(manifest: Manifest) -> str:
    """The script that runs this manifest's jobs, the same for equal manifests."""
    template = resources.files(__name__).joinpath("shim.sh").read_text(encoding="utf-8")
    return template.replace("@rendered@", "\n".join(_rendered(manifest)), 1)


def command_line(
    manifest: Manifest, id: ReplicaId, args: Mapping[str, Scalar], own_inputs: Sequence[str]
) -> str:
    """The `command_line` of one replica: its values for the script, as words of plain characters.

    Raises Unsuitable for more than a client's buffers hold, TemplateError for a wrong value.
    """
    values = [
        fill([f"{{{name}}}"], manifest.placeholders, args)[0] for name in value_names(manifest)
    ]
    words = [",".join(own_inputs), *values]
    line = " ".join(
        [f":{id.bot} :{id.seq} :{id.replica}", *(":" + encoded(word) for word in words), "."]
    )
    if len(line) > _MOST_COMMAND_LINE_BYTES:
        raise Unsuitable(
            f"the arguments take {len(line)} bytes of command line,"
            f" stock clients are given {_MOST_COMMAND_LINE_BYTES}: put them into an input file"
        )
    return line


def value_names(manifest: Manifest) -> list[str]:
    """The placeholders of the command, in the order in which the command line brings them."""
    return list(_sorted_placeholders(manifest.command))


@lru_cache(maxsize=256)
def _sorted_placeholders(command: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(placeholders_in(command)))


def single_output(manifest: Manifest) -> str | None:
    """The output that is uploaded as it is; None when there are none, several or a pattern."""
    if len(manifest.outputs) == 1 and not _WILD.search(manifest.outputs[0]):
        return manifest.outputs[0]
    return None


def may_lack_output(manifest: Manifest) -> bool:
    """Whether a good end may leave no output: patterns may match nothing."""
    return all(_WILD.search(output) for output in manifest.outputs)


def _rendered(manifest: Manifest) -> Iterator[str]:
    check(manifest)
    names = value_names(manifest)
    limits = manifest.resources
    yield f"# Manifest {manifest_id(manifest.text())}"
    yield f"limit_seconds={math.ceil(limits.seconds)}"
    yield f"limit_blocks={limits.disk_mb * _BLOCKS_PER_MB}"
    yield f"limit_kilobytes={limits.memory_mb << 10}"
    yield f"limit_output={manifest.max_output_bytes}"
    yield f"values={len(names)}"
    yield f"single={_quoted(single_output(manifest) or '')}"
    yield from _checkpoint(manifest)
    yield from _function("take_values", _takes(manifest, names))
    yield from _function("place_signed", _places(manifest))
    yield from _function("run_command", ["run " + " ".join(_arguments(manifest))])
    yield from _function("pick_outputs", _picks(manifest))


def check(manifest: Manifest) -> None:
    """Raise Unsuitable for a manifest that asks for more than this program does anywhere."""
    count = len(value_names(manifest))
    if count > _MOST_VALUES:
        raise Unsuitable(f"the command has {count} placeholders, at most {_MOST_VALUES}")
    if manifest.walls.level:
        raise Unsuitable(f"it asks for sandbox level {manifest.walls.level}, stock clients have 0")
    if lacking := _beyond(manifest):
        raise Unsuitable(f"it asks for {lacking}, which stock clients do not know")


def _beyond(manifest: Manifest) -> str:
    """What the script for stock clients cannot do for a BOT; empty if it can do all."""
    asked = {
        "exit codes that are answers": manifest.exit_codes != (0,),
        "environment variables": bool(manifest.environment),
        "standard input": bool(manifest.stdin),
        "other names of outputs": bool(manifest.output_names) or has_templates(manifest),
        "an environment of Python": bool(manifest.requirements or manifest.conda_pack),
        "a container": bool(manifest.image),
    }
    return " and ".join(name for name, is_asked in asked.items() if is_asked)


def _checkpoint(manifest: Manifest) -> Iterator[str]:
    """What is said of checkpoints: names of files hold no white space."""
    rule = manifest.checkpoint
    streams = [name for name in STREAMS if name in manifest.outputs]
    yield f"checkpoint_code={rule.exit_code if rule else ''}"
    yield f"checkpoint_every={rule.every if rule else 0:g}"
    yield f"checkpoint_files={_quoted(' '.join(map(checked, rule.files if rule else ())))}"
    yield f"checkpoint_streams={_quoted(' '.join(streams))}"


def _function(name: str, lines: Iterator[str] | list[str]) -> Iterator[str]:
    yield f"{name}() {{"
    yield from (f"    {line}" for line in lines)
    yield "    return 0"
    yield "}"


def _takes(manifest: Manifest, names: Sequence[str]) -> Iterator[str]:
    for number, name in enumerate(names, 1):
        kind = manifest.placeholders[name]
        yield f'take {kind} {_quoted(name)} "${{{number}}}"; v{number}=$value'


def _places(manifest: Manifest) -> Iterator[str]:
    for number, ref in enumerate(manifest.inputs):
        verb = "place_program" if ref.executable else "place"
        verb = "place_archive" if ref.name in manifest.archives else verb
        yield f"{verb} {SIGNED_INPUT.format(number)} {_quoted(checked(ref.name))}"


def _arguments(manifest: Manifest) -> Iterator[str]:
    """The command as quoted shell words, a variable in double quotes for each placeholder."""
    for first, *rest in argument_parts(manifest):
        word = _quoted(first)
        for number, after in zip(rest[::2], rest[1::2], strict=True):
            word += f'"$v{number}"' + (_quoted(after) if after else "")
        yield word


def argument_parts(manifest: Manifest) -> Iterator[list[str]]:
    """Each word of the command: literal texts, and between them the number of a value, from 1."""
    if any(_MARK in argument for argument in manifest.command):
        raise Unsuitable("the command holds the character \\x01, which no signed script may hold")
    names = value_names(manifest)
    marked = {name: f"{_MARK}{number}{_MARK}" for number, name in enumerate(names, 1)}
    try:
        command = fill(manifest.command, dict.fromkeys(names, "text"), marked)
    except TemplateError as error:
        raise Unsuitable(f"the command cannot be filled: {error}") from None
    return (argument.split(_MARK) for argument in command)


def _picks(manifest: Manifest) -> Iterator[str]:
    for output in manifest.outputs:
        if output in STREAMS:
            yield f"pick {output}"
        elif is_pattern(output):
            yield f"set +f; pick_matches {output}; set -f"
        else:
            yield f"pick_file {_quoted(checked(output))}"


def is_pattern(output: str) -> bool:
    """Whether an output is a pattern; Unsuitable for one that a shell might read as more."""
    if not _WILD.search(output):
        return False
    if len(output) > MAX_NAME_BYTES or not _PATTERN.fullmatch(output):
        raise Unsuitable(f"output {output!r} is no pattern of plain characters")
    return True


def checked(name: str) -> str:
    """A file's name that any system can have; raise Unsuitable for another."""
    try:
        return file_name(name, "file")
    except ProtocolError as error:
        raise Unsuitable(str(error)) from None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def encoded(text: str) -> str:
    """Text of plain characters only, from which `printf %b` makes it again."""
    if _PLAIN.fullmatch(text):
        return text
    return _ODD.sub(lambda found: b"\\0%03o" % found[0][0], text.encode()).decode("ascii")
