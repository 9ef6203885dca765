"""What a built-in function is, and what it sees of the evaluation that calls it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.operators import INT_MAX, INT_MIN
from gridbot_policies.classad.unparse import moment, pieces, span
from gridbot_policies.classad.values import (
    ERROR,
    Absent,
    AbsTime,
    ListValue,
    Missing,
    Record,
    RelTime,
    Value,
    bytes_of,
    text_of_bytes,
)


class CallContext(Protocol):
    """The evaluator's side of a call; each method counts against the evaluation's budget."""

    @property
    def scope(self) -> Record | None:
        """The current ad."""

    @property
    def now(self) -> float | None:
        """The time in seconds since 1970, if the evaluation was given one."""

    @property
    def strict(self) -> bool:
        """Whether the evaluation is HTCondor's strict one; `eval` must parse accordingly."""

    def evaluate(self, node: Node) -> Value:
        """Return the value of an argument that came unevaluated."""

    def evaluate_in(self, node: Node, scope: Record) -> Value:
        """Return the value that `node` has with another ad as the current one."""

    def elements(self, values: ListValue, scope: Record | None = None) -> Iterator[Value]:
        """Yield the values of a list's elements, with `scope` or else the current ad around."""

    def spend(self, steps: int) -> None:
        """Count work beyond what evaluating and joining texts count by themselves."""

    def fail(self) -> NoReturn:
        """Make an error of the evaluation as a whole, whatever is around this call."""

    def text(self, pieces: Iterable[str]) -> str:
        """Join the pieces, which may be many and large."""


@dataclass(frozen=True, slots=True)
class Function:
    """A built-in: how many arguments it takes, and whether it wants them unevaluated."""

    apply: Callable[..., Value]  # (call, *arguments)
    least: int
    most: int
    lazy: bool = False


def eager(least: int, most: int | None = None) -> Callable[[Callable[..., Value]], Function]:
    """Make a Function of one that takes values; `most` is `least` unless given."""
    return lambda apply: Function(apply, least, least if most is None else most)


def lazy(least: int, most: int | None = None) -> Callable[[Callable[..., Value]], Function]:
    """Make a Function of one that takes its arguments unevaluated."""
    return lambda apply: Function(apply, least, least if most is None else most, lazy=True)


ANY_NUMBER = 10_000


def text_of(call: CallContext, value: Value) -> str | Absent:
    """Return `value` as `string()` shows it; undefined and error stay."""
    match value:
        case str() | Missing():
            return value
        case AbsTime():
            return moment(value)
        case RelTime(seconds):
            return span(float(int(seconds))) if abs(seconds) < INT_MAX else ERROR
        case _:
            return call.text(pieces(value))


def joined(call: CallContext, parts: Iterable[str]) -> str:
    """Join texts, making characters whole of which they hold bytes."""
    text = call.text(parts)
    return text if text.isascii() else text_of_bytes(bytes_of(text))


_REAL = re.compile(
    r"[ \t\n\v\f\r]*([-+]?(?:inf(?:inity)?|nan"
    r"|0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[-+]?[0-9]+)?"
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?))",
    re.IGNORECASE,
)


def real_of_text(text: str) -> float | None:
    """Return the number that `text` begins with, as C's strtod reads it."""
    match = _REAL.match(text)
    if match is None:
        return None
    digits = match[1]
    if "x" not in digits.lower():
        return float(digits)
    try:
        return float.fromhex(digits)
    except OverflowError:
        return -math.inf if digits[0] == "-" else math.inf


def real_of(value: Value) -> float | Absent:
    """Return `value` as `real()` converts it."""
    match value:
        case Missing():
            return value
        case int() | float():
            return float(value)
        case str():
            number = real_of_text(value)
            return ERROR if number is None else number
        case AbsTime(seconds) | RelTime(seconds):
            return float(whole(seconds))
        case _:
            return ERROR


def whole(number: float) -> int:
    """Return `number` cut to an integer; what does not fit 64 bits gives the smallest one."""
    return int(number) if INT_MIN <= number < INT_MAX else INT_MIN


def int32(number: float) -> int:
    """Return what C's int makes of a number: an integer's last 32 bits; a real cut, if it fits."""
    if isinstance(number, int):
        return (number + 2**31) % 2**32 - 2**31
    return int(number) if -(2**31) <= number < 2**31 else -(2**31)


def is_int(value: Any) -> bool:
    """Tell an integer from a boolean, which Python takes for one."""
    return type(value) is int
