"""What a pattern is made of, and which bytes its classes of characters hold."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass


class WrongPattern(ValueError):
    """PCRE does not accept the pattern either."""


class InexpressiblePattern(ValueError):
    """PCRE accepts the pattern, and RE2 cannot do what it asks for."""


def needs_backtracking(what: str) -> InexpressiblePattern:
    """Return the error that says so."""
    return InexpressiblePattern(
        f"{what} cannot be matched in linear time, as all patterns are here; write it without"
    )


@dataclass(frozen=True, slots=True)
class Chars:
    """One byte out of some."""

    of: frozenset[int]


@dataclass(frozen=True, slots=True)
class Place:
    """An assertion that takes no text, as RE2 writes it."""

    text: bytes


@dataclass(frozen=True, slots=True)
class Group:
    """Alternatives in parentheses."""

    alternatives: Alternatives
    captures: bool


@dataclass(frozen=True, slots=True)
class Repeat:
    """An item some number of times; `most` is None if there is no limit."""

    item: Chars | Group
    least: int
    most: int | None
    lazy: bool


Item = Chars | Place | Group | Repeat
Alternatives = tuple[tuple[Item, ...], ...]


def may_be_empty(item: Item) -> bool:
    """Tell whether an item can match without taking text."""
    match item:
        case Chars():
            return False
        case Place():
            return True
        case Repeat(inner, least):
            return least == 0 or may_be_empty(inner)
        case Group(alternatives):
            return any(all(map(may_be_empty, items)) for items in alternatives)


END = Place(b"\\z or before the last newline")  # only the writer knows how to say it
BEGIN_OF_LINE = Place(b"(?m:^)")
END_OF_LINE = Place(b"(?m:$)")
PLACES = {
    b"A": Place(b"\\A"),
    b"z": Place(b"\\z"),
    b"Z": END,
    b"b": Place(b"\\b"),
    b"B": Place(b"\\B"),
}


def _ascii(test: Callable[[str], bool]) -> frozenset[int]:
    return frozenset(code for code in range(128) if test(chr(code)))


ALL = frozenset(range(256))
ALPHA = _ascii(str.isalpha)
_DIGIT = _ascii(str.isdigit)
_SPACE = frozenset(b" \t\n\v\f\r")
_WORD = _DIGIT | ALPHA | {ord("_")}
NOT_NEWLINE = ALL - {ord("\n")}
POSIX = {
    b"alpha": ALPHA,
    b"lower": _ascii(str.islower),
    b"upper": _ascii(str.isupper),
    b"alnum": ALPHA | _DIGIT,
    b"ascii": frozenset(range(128)),
    b"blank": frozenset(b" \t"),
    b"cntrl": frozenset(range(32)) | {127},
    b"digit": _DIGIT,
    b"graph": frozenset(range(33, 127)),
    b"print": frozenset(range(32, 127)),
    b"punct": frozenset(range(33, 127)) - ALPHA - _DIGIT,
    b"space": _SPACE,
    b"word": _WORD,
    b"xdigit": frozenset(b"0123456789abcdefABCDEF"),
}
_BY_LETTER = {
    b"d": _DIGIT,
    b"w": _WORD,
    b"s": _SPACE,
    b"h": frozenset(b" \t\xa0"),
    b"v": frozenset(b"\n\v\f\r\x85"),
}
CLASSES = _BY_LETTER | {letter.upper(): ALL - chars for letter, chars in _BY_LETTER.items()}


def with_property(name: str) -> frozenset[int]:
    """Return the bytes that have a general category, `Lu` or `L`, as Latin-1 characters.

    Raises InexpressiblePattern.
    """
    if name == "Any":
        return ALL
    categories = [(code, unicodedata.category(chr(code))) for code in range(256)]
    if name == "L&":
        return frozenset(code for code, category in categories if category in ("Lu", "Ll", "Lt"))
    if len(name) > 2 or name[0] not in "CLMNPSZ":
        raise InexpressiblePattern(f"the property {name} is not known here; write the characters")
    return frozenset(code for code, category in categories if category.startswith(name))
