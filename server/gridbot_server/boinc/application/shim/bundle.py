"""Reads the file in which the shim returns several outputs: a line of size and name before each.

Equal outputs make equal bundles, whatever the machine; validation looks at the outputs in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from gridbot_client.protocol.messages import (
    MAX_NAME_BYTES,
    MAX_OUTPUTS,
    Manifest,
    ProtocolError,
    file_name,
)
from gridbot_server.bots.outputs import is_wanted

_FIRST_LINE = b"gridbot-outputs 1\n"
_MOST_LINE_BYTES = MAX_NAME_BYTES + 24
_SIZE_DIGITS = 18


class BadBundle(ValueError):
    """An uploaded bundle is not as the shim makes it, so its replica has failed."""


@dataclass(frozen=True, slots=True)
class Member:
    """One output in a bundle: where its bytes begin and how many they are."""

    name: str
    offset: int
    size: int


def members(file: BinaryIO, size: int, manifest: Manifest) -> Iterator[Member]:
    """The outputs of a bundle of `size` bytes, in order of their names; BadBundle when it is none.

    Reads the lines only, so the caller may read a member's bytes from its offset in between.
    """
    if file.read(len(_FIRST_LINE)) != _FIRST_LINE:
        raise BadBundle("the upload is not a bundle of outputs")
    offset, before, count, total = len(_FIRST_LINE), "", 0, 0
    while offset < size:
        member = _member(file, offset)
        count, total, offset = count + 1, total + member.size, member.offset + member.size
        if member.name <= before or count > MAX_OUTPUTS:
            raise BadBundle(f"output {member.name} is out of order or one too many")
        if offset > size or total > manifest.max_output_bytes:
            raise BadBundle(f"output {member.name} goes on after what may be there")
        if not is_wanted(member.name, manifest, {}):
            raise BadBundle(f"output {member.name} was not asked for")
        before = member.name
        yield member


def _member(file: BinaryIO, offset: int) -> Member:
    file.seek(offset)
    line = file.readline(_MOST_LINE_BYTES)
    size, _, name = line.partition(b" ")
    if not line.endswith(b"\n") or not size.isdigit() or len(size) > _SIZE_DIGITS:
        raise BadBundle(f"there is no output at byte {offset}")
    try:
        checked = file_name(name[:-1].decode("ascii", "replace"), "output")
    except ProtocolError as error:
        raise BadBundle(str(error)) from None
    return Member(checked, offset + len(line), int(size))
