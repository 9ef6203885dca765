"""Reads and writes RSL.  Pure.

    spec:      one of & | + and one or more specs in parentheses, or a relation
    relation:  attribute, one of = != > >= < <=, and values
    value:     (values), a literal, $(NAME), $(NAME default), or such with # between them

A literal is plain, "…", '…' with the delimiter doubled inside, or ^X…X with a delimiter of its own.
Comments stand between (* and *).  A
plain literal that touches a variable, or a variable that does, is joined to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gridbot.api.errors import BadInput

AND, OR, MULTI = "&", "|", "+"
_KINDS = (AND, OR, MULTI)
_OPERATORS = ("!=", ">=", "<=", "=", ">", "<")
_MOST_DEPTH = 100
_MOST_CHARACTERS = 1 << 20
MOST_SUBSTITUTED = 1 << 16  # characters that one description takes from variables
_BLANK = re.compile(r"(?:\s|\(\*.*?\*\))*", re.DOTALL)
_PLAIN = re.compile(r"""[^\s+&|=!<>()"'^*$#?~][^\s=!<>()"'^*$#?~]*""")


@dataclass(frozen=True, slots=True)
class RslVariable:
    """$(NAME), or $(NAME default)."""

    name: Value
    default: Value | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """Values that make one."""

    parts: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """(values)."""

    values: tuple[Value, ...]


Value = str | RslVariable | Joined | Sequence


@dataclass(frozen=True, slots=True)
class Relation:
    """An attribute, as it is written, an operator, and values."""

    attribute: str
    operator: str
    values: tuple[Value, ...]

    @property
    def name(self) -> str:
        """The attribute without what does not count: its case, and underscores."""
        return plain_name(self.attribute)


@dataclass(frozen=True, slots=True)
class Specs:
    """A conjunction, alternatives, or a multi-request."""

    kind: str
    items: tuple[Spec, ...]


Spec = Relation | Specs


def plain_name(attribute: str) -> str:
    """An attribute's name without its case and underscores."""
    return attribute.replace("_", "").lower()


def parse(text: str) -> Spec:
    """Read a description.  Raises BadInput that shows the place."""
    if len(text) > _MOST_CHARACTERS:
        raise BadInput(f"RSL: {len(text)} characters, at most {_MOST_CHARACTERS}")
    reader = _Reader(text)
    spec = reader.spec(0)
    if reader.place < len(text):
        reader.fail("the end was expected")
    return spec


class Variables:
    """The variables of one description; all that it takes from them is bounded."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)
        self._left = MOST_SUBSTITUTED

    def copy(self) -> Variables:
        """These, for a description within this one."""
        return Variables(self._values)

    def define(self, values: Mapping[str, str]) -> None:
        """Add variables, or change them."""
        self._values.update(values)

    def substituted(self, value: Value) -> str | tuple[object, ...]:
        """Replace the variables in a value: a text, or a tuple for values in parentheses.

        Raises BadInput for a variable that nothing defines, and when a description takes more
        than `MOST_SUBSTITUTED` characters from variables.
        """
        if isinstance(value, str):
            return value
        if isinstance(value, Sequence):
            return tuple(map(self.substituted, value.values))
        if isinstance(value, Joined):
            return "".join(map(self._text, value.parts))
        name = self._text(value.name)
        if name in self._values:
            return self._taken(self._values[name])
        if value.default is None:
            raise BadInput(f"RSL: nothing defines the variable {name[:60]}")
        return self.substituted(value.default)

    def _taken(self, text: str) -> str:
        self._left -= len(text)
        if self._left < 0:
            raise BadInput(f"RSL: variables give more than {MOST_SUBSTITUTED} characters")
        return text

    def _text(self, value: Value) -> str:
        found = self.substituted(value)
        if not isinstance(found, str):
            raise BadInput(f"RSL: {written(value)[:60]} is no text")
        return found


def written(item: Spec | Value) -> str:
    """The canonical text of a description or a value: reading it gives the same."""
    match item:
        case Relation():
            values = " ".join(map(written, item.values))
            return f"{_literal(item.attribute)} {item.operator} {values}"
        case Specs():
            return item.kind + "".join(f"({written(spec)})" for spec in item.items)
        case Sequence():
            return f"({' '.join(map(written, item.values))})"
        case Joined():
            return " # ".join(map(written, item.parts))
        case RslVariable():
            default = "" if item.default is None else f" {written(item.default)}"
            return f"$({written(item.name)}{default})"
        case _:
            return _literal(item)


def _literal(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


class _Reader:
    """A place in a text; each method reads on from there."""

    def __init__(self, text: str) -> None:
        self._text, self.place = text, 0
        self._skip()

    def fail(self, why: str) -> None:
        """Raise BadInput that shows the line."""
        before = self._text[: self.place]
        line, column = before.count("\n") + 1, self.place - before.rfind("\n")
        shown = self._text.split("\n")[line - 1]
        near = self._text[self.place : self.place + 20].split("\n")[0] or "the end"
        raise BadInput(f"RSL, line {line}, column {column}: {why}, not {near!r}: {shown[:200]}")

    def spec(self, depth: int) -> Spec:
        """Read a description or a part of one."""
        if depth > _MOST_DEPTH:
            self.fail(f"at most {_MOST_DEPTH} parentheses within each other are read")
        kind = self._text[self.place : self.place + 1]
        if kind not in _KINDS or not kind:
            return self._relation()
        self._pass(kind)
        items = list[Spec]()
        while self._is_at("("):
            self._pass("(")
            items.append(self.spec(depth + 1))
            self._pass(")")
        if not items:
            self.fail(f"( was expected after {kind}")
        return Specs(kind, tuple(items))

    def _relation(self) -> Relation:
        attribute = self._literal()
        if attribute is None:
            self.fail("an attribute, or one of & | +, was expected")
        self._skip()
        operator = next((item for item in _OPERATORS if self._is_at(item)), "")
        if not operator:
            self.fail(f"one of {' '.join(_OPERATORS)} was expected")
        self._pass(operator)
        assert attribute is not None
        return Relation(attribute, operator, self._values(0))

    def _values(self, depth: int) -> tuple[Value, ...]:
        found = list[Value]()
        while (value := self._value(depth)) is not None:
            found.append(value)
        if not found:
            self.fail("a value was expected")
        return tuple(found)

    def _value(self, depth: int) -> Value | None:
        if depth > _MOST_DEPTH:
            self.fail(f"at most {_MOST_DEPTH} parentheses within each other are read")
        if self._is_at("("):
            self._pass("(")
            values = self._values(depth + 1)
            self._pass(")")
            return Sequence(values)
        is_quoted = self._is_quote()
        first = self._atom(depth)
        if first is None:
            return None
        parts = [first]
        while True:
            touches = not is_quoted and (
                self._is_at("$") or (isinstance(parts[-1], RslVariable) and self._is_plain())
            )
            blank = self._skip()
            if self._is_at("#"):
                self._pass("#")
            elif blank or not touches:
                break
            is_quoted = self._is_quote()
            following = self._atom(depth)
            if following is None:
                self.fail("a literal or a variable was expected")
                break
            parts.append(following)
        return first if len(parts) == 1 else Joined(tuple(parts))

    def _atom(self, depth: int) -> Value | None:
        if not self._is_at("$"):
            return self._literal()
        self._pass("$")
        self._pass("(")
        values = self._values(depth + 1)
        if len(values) > 2:
            self.fail("a variable has a name, and one default at most")
        if not self._is_at(")"):
            self.fail(") was expected")
        self.place += 1
        return RslVariable(values[0], values[1] if len(values) == 2 else None)

    def _is_plain(self) -> bool:
        return _PLAIN.match(self._text, self.place) is not None

    def _is_quote(self) -> bool:
        return any(self._is_at(quote) for quote in "\"'^")

    def _literal(self) -> str | None:
        """Read a literal, and leave what follows it."""
        if not self._is_quote():
            found = _PLAIN.match(self._text, self.place)
            if found is None:
                return None
            self.place = found.end()
            return found[0]
        is_own = self._is_at("^")
        quote = self._text[self.place + is_own : self.place + is_own + 1]
        begin = self.place + 1 + is_own
        place = begin
        while quote:
            end = self._text.find(quote, place)
            if end < 0:
                break
            if self._text[end + 1 : end + 2] != quote:
                self.place = end + 1
                return self._text[begin:end].replace(2 * quote, quote)
            place = end + 2
        self.fail("the end of this literal is missing")
        return None

    def _is_at(self, text: str) -> bool:
        return self._text.startswith(text, self.place)

    def _pass(self, text: str) -> None:
        if not self._is_at(text):
            self.fail(f"{text} was expected")
        self.place += len(text)
        self._skip()

    def _skip(self) -> bool:
        """Pass blanks and comments; whether there were any."""
        found = _BLANK.match(self._text, self.place)
        before, self.place = self.place, found.end() if found else self.place
        return self.place > before
