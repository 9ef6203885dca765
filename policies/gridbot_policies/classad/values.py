"""The values that an expression can have: plain Python ones, and a class for each of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from gridbot_policies.classad.nodes import Node


class Missing(Enum):
    """The two values that are not values: nothing is known, or something went wrong."""

    UNDEFINED = "undefined"
    ERROR = "error"

    def __repr__(self) -> str:
        return self.value


UNDEFINED: Final = Missing.UNDEFINED
ERROR: Final = Missing.ERROR


@dataclass(frozen=True, slots=True)
class AbsTime:
    """A moment: seconds since 1970 UTC, and the offset east of UTC (s) in which it is shown."""

    seconds: int
    offset: int


@dataclass(frozen=True, slots=True)
class RelTime:
    """A span of time in seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ListValue:
    """A list whose elements are evaluated when they are looked at, in `scope`."""

    items: tuple[Node | Value, ...]
    scope: Record | None


class Record:
    """An ad: attributes by case-folded name, and the ad around it, where missing names are sought.

    `other` is the opposite ad of a match. A record without a parent belongs to
    whichever record holds it; `within` gives it one without copying.
    """

    __slots__ = ("attributes", "names", "other", "parent")

    def __init__(
        self,
        attributes: Mapping[str, Node | Value],
        names: tuple[str, ...],
        parent: Record | None = None,
    ) -> None:
        self.attributes = attributes
        self.names = names  # as they were written, in the order of `attributes`
        self.parent = parent
        self.other: Record | None = None

    def __repr__(self) -> str:
        return f"Record({', '.join(self.names)})"

    def get(self, name: str) -> Node | Value:
        """Return the attribute as it was given, unevaluated; undefined where there is none."""
        return self.attributes.get(fold(name), UNDEFINED)

    def within(self, parent: Record) -> Record:
        """Return the same ad inside `parent`."""
        return Record(self.attributes, self.names, parent)

    def holding(self, name: str, value: Value) -> Record:
        """Return the ad with one attribute more, or one replaced."""
        key = fold(name)
        names = self.names if key in self.attributes else (*self.names, name)
        return Record({**self.attributes, key: value}, names, self.parent)

    def overlaid(self, upper: Record) -> Record:
        """Return an ad with the attributes of both; those of `upper` win."""
        added = (
            name
            for name, key in zip(upper.names, upper.attributes, strict=True)
            if key not in self.attributes
        )
        return Record({**self.attributes, **upper.attributes}, (*self.names, *added), self.parent)


# `bool` is listed for the reader only: it is an int. Code must test for bool first.
Value = Missing | bool | int | float | str | AbsTime | RelTime | ListValue | Record
Absent = Literal[Missing.UNDEFINED, Missing.ERROR]
Truth = bool | Absent


class _FoldedNames(dict[str, str]):
    """Names with ASCII letters in lower case, remembered: hosts have the same forty each time."""

    def __missing__(self, name: str) -> str:
        folded = name.lower() if name.isascii() else text_of_bytes(bytes_of(name).lower())
        if len(self) >= 8192:
            self.clear()
        if len(name) <= 64:
            self[name] = folded
        return folded


FOLDED = _FoldedNames()


def fold(name: str) -> str:
    """Return the form of a name under which it is stored: names differ by more than case."""
    return FOLDED[name]


def bytes_of(text: str) -> bytes:
    """Return the UTF-8 bytes of a string, which is what HTCondor counts, cuts and compares.

    A byte that belongs to no character is a lone surrogate in the string (Python's
    "surrogateescape").
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # other lone surrogates, which stand for nothing
        return text.encode("utf-8", "replace")


def text_of_bytes(data: bytes) -> str:
    """Return the string whose bytes these are."""
    return data.decode("utf-8", "surrogateescape")


_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


def record(mapping: Mapping[str, object]) -> Record:
    """Make an ad of a plain mapping; None becomes undefined, mappings and lists nest.

    Raises TypeError for a value that no ad can hold, ValueError for a name
    given twice (names are equal regardless of case).
    """
    # One for each host request: the common types are told apart here, without a call.
    attributes: dict[str, Node | Value] = {
        FOLDED[name]: value
        if type(value) is str
        or type(value) is float
        or type(value) is bool
        or (type(value) is int and _INT_MIN <= value <= _INT_MAX)
        else _value(name, value)
        for name, value in mapping.items()
    }
    if len(attributes) != len(mapping):
        raise ValueError(f"attribute given twice, in different case: {', '.join(mapping)}")
    return Record(attributes, tuple(mapping))


def _value(name: str, value: object) -> Value:
    if value is None:  # most often
        return UNDEFINED
    if isinstance(value, bool | float | str):
        return value
    if isinstance(value, int):
        if _INT_MIN <= value <= _INT_MAX:
            return value
        # Integers are 64 bits in the language; what is longer can only be meant as a magnitude.
        return float(value) if abs(value) < 10**300 else ERROR
    if isinstance(value, Mapping):
        return record(value)
    if isinstance(value, list | tuple):
        return ListValue(tuple(_value(name, item) for item in value), None)
    if isinstance(value, Missing | AbsTime | RelTime | ListValue | Record):
        return value
    raise TypeError(f"attribute {name}: an ad cannot hold a {type(value).__name__}")
