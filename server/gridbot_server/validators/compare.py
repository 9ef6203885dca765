"""Compares two answers, file by file.  Reads them in chunks; never changes them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import BinaryIO

from gridbot_server.validators import documents, numbers, text
from gridbot_server.validators.difference import Difference, excerpt
from gridbot_server.validators.spec import Validator


@dataclass(frozen=True, slots=True)
class AnswerFile:
    """A file of an answer: its hash, and where its content is."""

    sha256: str
    path: str = ""  # in the file store
    content: bytes | None = None  # or at hand

    def open(self) -> BinaryIO:
        """Open it for reading.  Raises OSError."""
        return io.BytesIO(self.content) if self.content is not None else open(self.path, "rb")


Answer = Mapping[str, AnswerFile]  # by name


def difference(validator: Validator, one: Answer, other: Answer) -> Difference | None:
    """Return where two answers differ, or None if they agree.  Raises OSError.

    Not for `command`, which is a program of its own.
    """
    if found := difference_of_names(one, other):
        return found
    for name in sorted(one):
        if one[name].sha256 == other[name].sha256 and validator.accepts_equal_bytes:
            continue
        with one[name].open() as first, other[name].open() as second:
            found = _difference(validator, first, second)
        if found is not None:
            return replace(found, place=f"{name}, {found.place}")
    return None


def difference_of_names(one: Answer, other: Answer) -> Difference | None:
    """Return how the names of two answers' files differ, or None."""
    if one.keys() == other.keys():
        return None
    lists = _listed(one), _listed(other)
    return Difference("the names of the outputs", *lists, "not the same files")


def _difference(validator: Validator, one: BinaryIO, other: BinaryIO) -> Difference | None:
    match validator.kind:
        case "text":
            return text.difference(one, other)
        case "numbers":
            return numbers.difference(one, other, validator.tolerance)
        case "json":
            return documents.difference(one, other, validator.tolerance, validator.ignored)
        case _:
            return Difference("the file", "these bytes", "other bytes", "not equal to the last bit")


def _listed(files: Answer) -> str:
    return excerpt(", ".join(sorted(files)).encode()) or "none"
