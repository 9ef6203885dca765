"""HTCondor's old syntax: one `Name = expression` per line, as on its wire and in its tools."""

from __future__ import annotations

from collections.abc import Iterator

from gridbot_policies.classad.lexer import ParseError, Token, tokens
from gridbot_policies.classad.nodes import Definition, Node, RecordNode
from gridbot_policies.classad.parser import MAX_TEXT_BYTES, check_size, parse_beginning
from gridbot_policies.classad.unparse import Spelling, attributes, pieces
from gridbot_policies.classad.values import Record, Value


def parse_old(
    text: str, *, strict: bool = False, max_bytes: int = MAX_TEXT_BYTES
) -> tuple[Definition, ...]:
    """Return the attributes of one ad. Raises ParseError.

    Empty lines and those that begin with # are skipped. In strings a backslash is an ordinary
    character, except before a quote that does not end the line. What follows a complete
    expression on its line is ignored, as HTCondor ignores it; a line without one is an error.
    """
    check_size(text, max_bytes)
    return tuple(_definition(text, start, line, strict) for start, line in _lines(text))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield where each line begins that is not empty or a comment, and the line."""
    start = 0
    for line in text.split("\n"):
        if (shown := line.strip()) and shown[0] != "#":
            yield start, line.removesuffix("\r")
        start += len(line) + 1


def _definition(text: str, start: int, line: str, strict: bool) -> Definition:
    name, equals, expression = line.partition("=")
    offset = start + len(name) - len(name.lstrip())
    # Tabs behind a name belong to it: only blanks are cut off there.
    name = name.lstrip().rstrip(" ")
    if not equals or not name:
        raise ParseError(text, offset, "Name = expression", repr(line.strip()[:40]), "")
    unreadable: list[ParseError] = []
    words = _words(expression, strict, unreadable)
    try:
        return Definition(name, parse_beginning(expression, words, strict), offset)
    except ParseError as error:
        cause = unreadable[0] if unreadable else error
        place = start + len(line) - len(expression) + cause.offset
        found = "the end of the line" if cause.offset >= len(expression) else cause.found
        raise ParseError(text, place, cause.expected, found, cause.advice) from None


def _words(text: str, strict: bool, unreadable: list[ParseError]) -> Iterator[Token]:
    """Yield the words of a line up to one that cannot be read, which may follow its expression."""
    try:
        yield from tokens(text, strict=strict, old=True)
    except ParseError as error:
        unreadable.append(error)
        yield Token("end", "", error.offset, error.offset)


def unparse_old(ad: RecordNode | Record) -> str:
    """Return the ad in old syntax, sorted by name.

    Raises ValueError for what the old syntax has no way to write: a line break in a string, a
    backslash at the end of a string that does not end the line, = in a name.
    """
    return "".join(f"{_line(name, value)}\n" for name, value in attributes(ad))


def _line(name: str, value: Node | Value) -> str:
    expression = "".join(pieces(value, Spelling.OLD))
    if name != name.strip() or not name or set(name) & set("=\n") or name[0] == "#":
        raise ValueError(f"attribute {name!r}: the old syntax cannot write this name")
    if "\n" in expression or _strings(expression, old=True) != _strings(
        "".join(pieces(value, Spelling.EXACT)), old=False
    ):
        raise ValueError(f"attribute {name}: the old syntax cannot write {expression[:80]!r}")
    return f"{name} = {expression}"


def _strings(text: str, old: bool) -> list[object] | None:
    try:
        words = list(tokens(text, old=old))
    except ParseError:
        return None
    return [word.value for word in words if word.kind in ("string", "quoted name")]
