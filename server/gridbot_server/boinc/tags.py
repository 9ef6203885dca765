"""Reads BOINC's texts tag by tag, as BOINC's own programs do: they look like XML and are not.

Text is often not escaped, raw output of programs stands in the middle, and a tag that nobody
knows means nothing.  Reading is total: what cannot be read becomes a `BoincError`, in time that
is linear in the size of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

MAX_TAGS = 100_000  # in one text; a raw element counts as one, whatever is in it
MAX_TEXT = 255  # characters of a value, unless told otherwise
_MAX_DIGITS = 64  # of a number; reading one of a million digits takes long

# A whole element without others in it, or one tag.  Possessive, so that nothing is tried twice.
_TAG = re.compile(r"<([A-Za-z]\w*+)>([^<]*+)</\1>|<(/?)([A-Za-z]\w*+)\s*+(/?)>", re.ASCII)
# BOINC escapes the bytes of a character one by one.
_BYTES = re.compile(r"(?:&#(?:12[89]|1[3-9]\d|2[0-4]\d|25[0-5]);)+", re.ASCII)
_ENTITY = re.compile(r"&(?:#(\d{1,7})|(lt|gt|amp|quot|apos));", re.ASCII)
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}


class BoincError(ValueError):
    """Something does not fit BOINC's protocol; the text says what, for people."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """Which elements hold others, and which are taken as they are up to their end.

    All other tags inside an element count as its own values, however they are nested.
    """

    root: str
    inside: Mapping[str, frozenset[str]]
    raw: frozenset[str] = frozenset()


class Section:
    """An element that holds others: its values, further such elements, and raw ones."""

    __slots__ = ("raws", "sections", "values")

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.sections: dict[str, list[Section]] = {}
        self.raws: dict[str, list[str]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.sections or name in self.values

    def text(self, name: str, most: int = MAX_TEXT) -> str:
        """The value of a name, cut to `most` characters; empty when it is missing."""
        value = self.values.get(name)
        return unescape(value.strip())[:most] if value else ""

    def number(
        self, name: str, default: float = 0.0, least: float = 0.0, most: float = 1e18
    ) -> float:
        """The number of a name, `default` when it is missing, none, or out of bounds."""
        value = self.values.get(name)
        if value is None or len(value) > _MAX_DIGITS:
            return default
        try:
            number = float(value)
        except ValueError:
            return default
        return number if least <= number <= most else default

    def integer(self, name: str, default: int = 0, least: int = 0, most: int = 2**53) -> int:
        """The whole number of a name; BOINC writes many with zeros behind a point."""
        return int(self.number(name, default, least, most))

    def flag(self, name: str) -> bool:
        """Whether `<name/>` or `<name>1</name>` is there; the word true is not understood."""
        return self.number(name) != 0

    def one(self, name: str) -> Section:
        """The last element of a name; an empty one when there is none."""
        found = self.sections.get(name)
        return found[-1] if found else Section()

    def all(self, name: str) -> list[Section]:
        """The elements of a name."""
        return self.sections.get(name, [])

    def raw(self, name: str) -> str:
        """The last raw element of a name, as it came."""
        return self.raws.get(name, [""])[-1]


def read(text: str, grammar: Grammar) -> Section:
    """Return the root element, or raise BoincError when it does not begin or does not end."""
    reader = _Reader(grammar)
    for piece, name, content in _pieces(text, grammar.raw):
        reader.feed(piece)
        if name:
            reader.here.raws.setdefault(name, []).append(content)
    root = reader.top.sections.get(grammar.root)
    if root is None:
        raise BoincError(f"the text has no <{grammar.root}>")
    if not reader.is_done:
        raise BoincError(f"the text ends before </{grammar.root}>")
    return root[0]


class _Reader:
    """Keeps which elements are open."""

    def __init__(self, grammar: Grammar) -> None:
        self._inside, self._root = grammar.inside, grammar.root
        self.top = self.here = Section()
        self._open: list[tuple[str, Section]] = [("", self.top)]
        self._tags = 0
        self.is_done = False

    def feed(self, piece: str) -> None:
        """Take the tags of a piece of the text, at whose end a raw element may begin."""
        self._tags += piece.count("<") + 1
        if self._tags > MAX_TAGS:
            raise BoincError(f"more than {MAX_TAGS} tags")
        if self.is_done:
            return
        values = self.here.values
        for name, value, slash, tag, single in _TAG.findall(piece):
            if name:
                values[name] = value
            elif single:
                values[tag] = "1"
            elif slash and tag == self._root:
                self.is_done = True
                return
            else:
                (self._leave if slash else self._enter)(tag)
                values = self.here.values

    def _enter(self, tag: str) -> None:
        """Open an element in the innermost one that may hold it: those in between have no end."""
        for depth in range(len(self._open) - 1, -1, -1):
            name, section = self._open[depth]
            if tag in self._inside.get(name, ()):
                inner = Section()
                section.sections.setdefault(tag, []).append(inner)
                self._open[depth + 1 :] = [(tag, inner)]
                self.here = inner
                return

    def _leave(self, tag: str) -> None:
        for depth in range(len(self._open) - 1, 0, -1):
            if self._open[depth][0] == tag:
                del self._open[depth:]
                self.here = self._open[-1][1]
                return


def _pieces(text: str, raw: frozenset[str]) -> Iterator[tuple[str, str, str]]:
    """Yield what comes before each raw element, its name and its content; the rest at last."""
    begins, missing, start = _beginning(raw), set[str](), 0
    while found := begins.search(text, start) if raw else None:
        name = found[1]
        end = _end(text, name, found.end(), missing)
        if end < 0:  # without an end it is all the rest
            yield text[start : found.start()], name, text[found.end() :]
            return
        yield text[start : found.start()], name, text[found.end() : end]
        start = end + len(name) + 3
    yield text[start:], "", ""


@lru_cache(maxsize=16)
def _beginning(names: frozenset[str]) -> re.Pattern[str]:
    return re.compile(f"<({'|'.join(sorted(names))})>")


def _end(text: str, name: str, start: int, missing: set[str]) -> int:
    """Where the end tag of a raw element is, or -1; in a CDATA block it means nothing."""
    end = text.find(f"</{name}>", start)
    # What is missing is not sought again, or many beginnings would take quadratic time.
    if name not in missing and text.find("<![CDATA[", start, end) >= 0:
        whole = text.find(f"]]>\n</{name}>", start)
        if whole >= 0:
            return whole + 4
        missing.add(name)
    return end


def unescape(text: str) -> str:
    """The text that stands behind the entities of another."""
    if "&" not in text:
        return text
    return _ENTITY.sub(_character, unescape_bytes(text))


def unescape_bytes(text: str) -> str:
    """The text with only its characters beyond ASCII put back, as in programs' output."""
    return _BYTES.sub(_joined, text) if "&#" in text else text


def _joined(found: re.Match[str]) -> str:
    codes = found[0][2:-1].split(";&#")
    return bytes(map(int, codes)).decode(errors="replace")


def _character(found: re.Match[str]) -> str:
    if found[2]:
        return _NAMED[found[2]]
    code = int(found[1])
    is_character = 0 < code < 0x110000 and not 0xD800 <= code < 0xE000
    return chr(code) if is_character else "\N{REPLACEMENT CHARACTER}"


def escape(value: object) -> str:
    """A value as text that BOINC reads back: on one line, without tags or control characters."""
    text = str(value)
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def element(name: str, value: object) -> str:
    """One element on a line of its own."""
    return f"<{name}>{escape(value)}</{name}>\n"


def flag(name: str, is_set: bool = True) -> str:
    """An element that is there or not."""
    return f"<{name}/>\n" if is_set else ""


def block(name: str, *lines: str) -> str:
    """An element around others."""
    return f"<{name}>\n{''.join(lines)}</{name}>\n"
