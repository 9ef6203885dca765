"""Regular expressions as HTCondor reads them (PCRE, byte by byte), put into RE2's syntax.

The pattern is read whole, because what looks alike often is not: `$`, `\\v`, `\\s`, options
and classes differ. What only backtracking can do is refused, never approximated.
"""

from __future__ import annotations

from dataclasses import dataclass

from gridbot_policies.classad.functions.patterns.reader import Reader, without_quotations
from gridbot_policies.classad.functions.patterns.tree import InexpressiblePattern, WrongPattern
from gridbot_policies.classad.functions.patterns.writer import Writer

LONGEST = 4096  # bytes of a pattern

__all__ = ["LONGEST", "InexpressiblePattern", "Translation", "WrongPattern", "translated"]


@dataclass(frozen=True, slots=True)
class Translation:
    """A pattern for RE2, in its Latin-1 mode."""

    text: bytes
    groups: tuple[int, ...]  # the pattern's groups, by RE2's numbers
    newlines: tuple[int, ...]  # groups of our own: the newline that `$` stands before
    begins_lines: bool  # has a `^` that also means the beginning of a line
    turns_empty: bool  # has a loop without end that may take nothing: where it stops is PCRE's own


def translated(pattern: bytes, options: str, *, before_newline: bool) -> Translation:
    """Return the pattern in RE2's syntax. Raises WrongPattern, InexpressiblePattern.

    `before_newline` is for texts that end in a newline: `$` then has two places to match.
    """
    if len(pattern) > LONGEST:
        raise InexpressiblePattern(
            f"a pattern of {len(pattern)} bytes is too long; write one of at most {LONGEST}"
        )
    writer = Writer(before_newline)
    writer.alternatives(Reader(without_quotations(pattern), options).whole(), tail=True)
    return Translation(
        b"".join(writer.written),
        tuple(writer.groups),
        tuple(writer.newlines),
        writer.begins_lines,
        writer.turns_empty,
    )
