"""Reads BOINC's texts tag by tag, as BOINC's own programs do: they look like XML and are not.

Text is often not escaped, raw output of programs stands in the middle, and a tag that nobody
knows means nothing.  Reading is total: what cannot be read becomes a `BoincError`, in time that
is linear in the size of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

MAX_TAGS = 100_000  # in one text; a raw element counts as one, whatever is in it
MAX_TEXT = 255  # characters of a value, unless told otherwise
_MAX_DIGITS = 64  # of a number; reading one of a million digits takes long

# An element without others in it.  Possessive, so that nothing is tried twice.
_VALUE = re.compile(r"<([A-Za-z]\w*+)>([^<]*+)</\1>", re.ASCII)
# BOINC escapes the bytes of a character one by one.
_BYTES = re.compile(r"(?:&#(?:12[89]|1[3-9]\d|2[0-4]\d|25[0-5]);)+", re.ASCII)
_ENTITY = re.compile(r"&(?:#(\d{1,7})|(lt|gt|amp|quot|apos));", re.ASCII)
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}

# How many texts are remembered for each of their meanings, and how long they may be: 12 MB at
# most, whatever anybody sends.
_KEPT, _KEPT_CHARACTERS = 512, 6000

Meaning = TypeVar("Meaning")
Names = tuple[str, ...] | frozenset[str]


class BoincError(ValueError):
    """Something does not fit BOINC's protocol; the text says what, for people."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """Which elements hold others, and which are taken as they are up to their end.

    What an element holds is not held, at any depth, by something else that it holds.  All other
    tags inside an element count as its own values, however they are nested.
    """

    root: str
    inside: Mapping[str, Names]
    raw: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Source:
    """What the elements of one text have in common: `raws` has what stood in its raw elements."""

    grammar: Grammar
    raws: dict[str, str] = field(default_factory=dict)


class Section:
    """An element that holds others: its values, further such elements, and raw ones.

    What is in it is read when somebody asks: of most elements nobody does.
    """

    __slots__ = ("_inner", "_own", "_source", "_values")

    def __init__(self, name: str, text: str, source: _Source) -> None:
        self._source = source
        self._own, self._inner = _cut(text, source.grammar.inside.get(name, ()))
        self._values: Mapping[str, str] | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._inner or self._value(name) is not None

    def _value(self, name: str) -> str | None:
        """The last value of a name, as it came."""
        if self._values is None:
            self._values = dict(_VALUE.findall(self._own))
        value = self._values.get(name)
        return "1" if value is None and f"<{name}/>" in self._own else value

    def text(self, name: str, most: int = MAX_TEXT) -> str:
        """The value of a name, cut to `most` characters; empty when it is missing."""
        value = self._value(name)
        return unescape(value.strip())[:most] if value else ""

    def number(
        self, name: str, default: float = 0.0, least: float = 0.0, most: float = 1e18
    ) -> float:
        """The number of a name, `default` when it is missing, none, or out of bounds."""
        return number(self._value(name), default, least, most)

    def integer(self, name: str, default: int = 0, least: int = 0, most: int = 2**53) -> int:
        """The whole number of a name; BOINC writes many with zeros behind a point."""
        return int(self.number(name, default, least, most))

    def flag(self, name: str) -> bool:
        """Whether `<name/>` or `<name>1</name>` is there; the word true is not understood."""
        return self.number(name) != 0

    def inner(self, name: str) -> str:
        """All that is in the last element of a name, for `section`; empty when there is none."""
        found = self._inner.get(name)
        return found[-1] if found else ""

    def one(self, name: str) -> Section:
        """The last element of a name; an empty one when there is none."""
        return Section(name, self.inner(name), self._source)

    def all(self, name: str, most: int | None = None) -> list[Section]:
        """The elements of a name, the first `most` of them."""
        return [Section(name, text, self._source) for text in self._inner.get(name, ())[:most]]

    def beside(self, name: str, most: int) -> list[Section]:
        """Elements of a name of its own that elements in it have, too; the first `most`."""
        _, found = _cut(self._own, (name,))
        return [Section(name, text, self._source) for text in found.get(name, ())[:most]]

    def count(self, name: str) -> int:
        """How many elements of a name there are."""
        return len(self._inner.get(name, ()))

    def raws(self, name: str) -> list[str]:
        """The raw elements of a name, as they came."""
        found = _VALUE.findall(self._own)
        return [self._source.raws.get(number, "") for tag, number in found if tag == name]

    def raw(self, name: str) -> str:
        """The last raw element of a name, as it came."""
        return self._source.raws.get(self._value(name) or "", "")


def read(text: str, grammar: Grammar) -> Section:
    """Return the root element, or raise BoincError when it does not begin or does not end."""
    rest, raws = _without_raws(text, grammar.raw)
    if len(rest) > MAX_TAGS and rest.count("<") > MAX_TAGS:
        raise BoincError(f"more than {MAX_TAGS} tags")
    begin = f"<{grammar.root}>"
    start = rest.find(begin)
    if start < 0:
        raise BoincError(f"the text has no {begin}")
    end = rest.rfind(f"</{grammar.root}>", start)
    if end < 0:
        raise BoincError(f"the text ends before </{grammar.root}>")
    return Section(grammar.root, rest[start + len(begin) : end], _Source(grammar, raws))


def section(name: str, text: str, grammar: Grammar) -> Section:
    """An element by what is in it, raw elements apart: see `Section.inner`."""
    return Section(name, text, _Source(grammar))


def number(text: str | None, default: float = 0.0, least: float = 0.0, most: float = 1e18) -> float:
    """The number that a text is, `default` when it is missing, none, or out of bounds."""
    if text is None or len(text) > _MAX_DIGITS:
        return default
    try:
        found = float(text)
    except ValueError:
        return default
    return found if least <= found <= most else default


def kept(meaning: Callable[[str], Meaning]) -> Callable[[str], Meaning]:
    """Remember what short texts mean, since clients say many things again in every request."""
    known = lru_cache(maxsize=_KEPT)(meaning)
    return lambda text: known(text) if len(text) <= _KEPT_CHARACTERS else meaning(text)


def _cut(text: str, names: Names) -> tuple[str, Mapping[str, Sequence[str]]]:
    """The text without the elements of these names, and what is in each of those.

    One without an end ends where the next one begins.
    """
    inner: dict[str, list[str]] = {}
    if not names:
        return text, inner
    before, *found = _beginning(names).split(text)
    own = [before]
    for name, begun in zip(found[::2], found[1::2], strict=True):
        content, _, after = begun.partition(f"</{name}>")
        inner.setdefault(name, []).append(content)
        own.append(after)
    # Apart, or what stands on either side could be taken for a tag.
    return "\n".join(own), inner


def _without_raws(text: str, raw: frozenset[str]) -> tuple[str, dict[str, str]]:
    """The text with a number in each raw element, and what was there by these numbers."""
    pieces: list[str] = []
    raws: dict[str, str] = {}
    begins, missing, start = _beginning(raw), set[str](), 0
    while begin := begins.search(text, start) if raw else None:
        if len(raws) == MAX_TAGS:
            raise BoincError(f"more than {MAX_TAGS} tags")
        at, number = begin.end(), str(len(raws))
        end = _end(text, begin[1], at, missing)
        pieces += (text[start:at], number)
        if end < 0:  # without an end it is all the rest
            return "".join(pieces), {**raws, number: text[at:]}
        raws[number] = text[at:end]
        start = end
    return "".join((*pieces, text[start:])), raws


@lru_cache(maxsize=16)
def _beginning(names: Names) -> re.Pattern[str]:
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
