"""Names of a job's outputs: where its program leaves them, and under which name they come back.

Both may hold placeholders, whose values come from strangers as well as from the BOT's owner: so
what they make is checked for each job, by the server before a BOT is taken, and by the client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gridbot_client.protocol.fields import MAX_NAME_BYTES, STREAMS, ProtocolError, file_name
from gridbot_client.protocol.manifest import Manifest
from gridbot_client.protocol.messages import Scalar
from gridbot_client.protocol.template import TemplateError, fill

_WILD = re.compile(r"[*?\[]")
_PART = r"[A-Za-z0-9_*?\[][A-Za-z0-9._+=@%*?\[\]!-]*"
_PATTERN = re.compile(rf"{_PART}(/{_PART})*")


class NamedOutput(NamedTuple):
    """A file, or a pattern of files, in the job's directory, and its name as a result."""

    found: str
    name: str


def is_pattern(text: str) -> bool:
    """True if a name stands for all files that match it."""
    return _WILD.search(text) is not None


def is_usable_pattern(text: str) -> bool:
    """True for a pattern of plain characters in parts that begin with none of `.` and `-`."""
    return len(text) <= MAX_NAME_BYTES and _PATTERN.fullmatch(text) is not None


def has_templates(manifest: Manifest) -> bool:
    """True if outputs of different jobs have different names."""
    return any("{" in text for text in (*manifest.outputs, *manifest.output_names.values()))


def output_names(manifest: Manifest, args: Mapping[str, Scalar]) -> Sequence[NamedOutput]:
    """The outputs of a job with these arguments.

    Raises TemplateError for a name that no file may have, or that two outputs have.
    """
    templates = manifest.outputs
    renamed = [manifest.output_names.get(template, template) for template in templates]
    types = manifest.placeholders
    pairs = map(NamedOutput, fill(templates, types, args), fill(renamed, types, args))
    names = [
        _checked(template, name, pair)
        for template, name, pair in zip(templates, renamed, pairs, strict=True)
    ]
    _refuse_collisions(names)
    return names


def _checked(template: str, renamed: str, pair: NamedOutput) -> NamedOutput:
    if template in STREAMS:
        return pair
    for text, filled in ((template, pair.found), (renamed, pair.name)):
        if filled in STREAMS:
            raise TemplateError(f"output {text!r} would be {filled!r}, which is a stream")
        if is_pattern(text):
            # A value brings no wildcards.
            same = len(_WILD.findall(text)) == len(_WILD.findall(filled))
            if same and is_usable_pattern(filled):
                continue
            raise TemplateError(f"output {text!r} would be {filled!r}, which is no usable pattern")
        try:
            file_name(filled, f"output {text!r}")
        except ProtocolError as error:
            raise TemplateError(str(error)) from None
    return pair


def _refuse_collisions(names: Sequence[NamedOutput]) -> None:
    """Refuse two outputs of one name, and a name that is another output's place."""
    exact = {pair for pair in names if not is_pattern(pair.found)}
    taken = dict[str, NamedOutput]()
    for pair in sorted(exact):
        if (other := taken.setdefault(pair.name, pair)) != pair:
            raise TemplateError(
                f"outputs {other.found!r} and {pair.found!r} would both be {pair.name!r}"
            )
    for pair in exact:
        if pair.name != pair.found and any(pair.name == other.found for other in exact):
            raise TemplateError(
                f"output {pair.found!r} would be {pair.name!r}, which is another output"
            )
