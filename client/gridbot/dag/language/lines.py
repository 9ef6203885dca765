"""From the text of a DAG file to lines, and from lines to words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BLANKS = " \t\r\n"
# Commands whose line may open a block of submit text.
_OPENERS = ("JOB", "NODE", "FINAL", "PROVISIONER", "SERVICE", "SUBMIT_DESCRIPTION")
_TAG = re.compile(r"@=(\w+)")


class WordError(ValueError):
    """A line that cannot be split into words."""


@dataclass(frozen=True)
class DagLine:
    """A line after continuation; `block` is the submit text that it opens."""

    number: int
    keyword: str  # upper case, with _ for -
    text: str  # without the keyword
    block: str | None = None
    written: str = ""  # the keyword as it stands there


def lines_of(text: str) -> Iterator[DagLine]:
    """Yield the lines that say something.  Raises WordError for a block that is not closed."""
    rows = iter(enumerate(text.split("\n"), 1))
    for number, joined in _joined(rows):
        word, _, rest = joined.replace("\t", " ").partition(" ")
        written = joined[: len(word)]
        keyword = plain(word)
        rest = joined[len(word) :].strip(_BLANKS)
        block = None
        if keyword in _OPENERS and (opened := _opening(rest)):
            before, after = opened
            block, behind = _block(number, before, after, rows)
            rest = f"{before} {behind}".strip()
        yield DagLine(number, keyword, rest, block, written)


def plain(word: str) -> str:
    """A keyword in one form: case does not matter, nor which of - and _ is used."""
    return word.upper().replace("-", "_")


def _joined(rows: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Lines with those that a backslash joins to them; comments and empty lines are skipped."""
    pieces, last = list[str](), 0
    for number, row in rows:
        piece = row.strip(_BLANKS)
        if not piece or piece.startswith(("#", "//")):
            continue
        last = number
        if piece.endswith("\\"):
            pieces.append(piece[:-1].strip(_BLANKS))
            continue
        pieces.append(piece)
        yield number, " ".join(pieces)
        pieces = []
    if pieces:
        yield last, " ".join(pieces)


def _opening(rest: str) -> tuple[str, str] | None:
    """What stands before a block's opening, and from it on; None if the line opens none."""
    name, _, behind = rest.replace("\t", " ").partition(" ")
    behind = behind.strip()
    return (name, behind) if behind.startswith(("{", "@=")) else None


def _block(
    number: int, name: str, opening: str, rows: Iterator[tuple[int, str]]
) -> tuple[str, str]:
    """The text of a block, and what stands behind its end."""
    tag = _TAG.match(opening)
    end, first = (f"@{tag[1]}", "") if tag else ("}", opening[1:].strip())
    if not tag and first.endswith("}"):
        return first[:-1], ""
    kept = [first] if first else []
    for _, row in rows:
        piece = row.strip(_BLANKS)
        if piece == end or piece.startswith((f"{end} ", f"{end}\t")):
            return "\n".join(kept), piece[len(end) :].strip(_BLANKS)
        if not piece.startswith("#"):
            kept.append(row)
    raise WordError(f"line {number}: the description of {name} is not closed by {end}")


class Words:
    """The words of a line, one after the other; quotes group, and a backslash escapes in them."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def _skip(self) -> None:
        while self._at < len(self._text) and self._text[self._at] in _BLANKS:
            self._at += 1

    def next(self) -> str | None:
        """The next word, with its quotes taken off; None at the end.  Raises WordError."""
        self._skip()
        if self._at >= len(self._text):
            return None
        if self._text[self._at] in "\"'":
            return self.quoted()
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in _BLANKS:
            self._at += 1
        return self._text[start : self._at]

    def quoted(self) -> str:
        """A value in quotes.  Raises WordError."""
        quote, start = self._text[self._at], self._at
        kept, self._at = list[str](), self._at + 1
        while self._at < len(self._text):
            char = self._text[self._at]
            following = self._text[self._at + 1 : self._at + 2]
            if char == "\\" and following in ("\\", quote) and following:
                kept.append(following)
                self._at += 2
                continue
            self._at += 1
            if char == quote:
                return "".join(kept)
            kept.append(char)
        raise WordError(f"the quote {quote} of {self._text[start : start + 40]!r} is not closed")

    def pair(self) -> tuple[str, str] | None:
        """`key = value`; None at the end.  Raises WordError."""
        self._skip()
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in _BLANKS + "=":
            self._at += 1
        key = self._text[start : self._at]
        self._skip()
        if not key and self._at >= len(self._text):
            return None
        if self._text[self._at : self._at + 1] != "=":
            raise WordError(f'{key!r} has no value: write {key}="value"')
        if not key or '"' in key or "'" in key:
            raise WordError(f"{key!r} is no name of a variable")
        self._at += 1
        self._skip()
        value = self.next()
        return key, value if value is not None else ""

    def rest(self) -> str:
        """All that is left."""
        return self._text[self._at :].strip(_BLANKS)

    def all(self) -> list[str]:
        """All words that are left.  Raises WordError."""
        found = []
        while (word := self.next()) is not None:
            found.append(word)
        return found
