"""What each operator makes of two values: HTCondor's truth tables and arithmetic."""

from __future__ import annotations

import math
import operator as python
from collections.abc import Callable, Mapping
from typing import Any

from gridbot_policies.classad.values import (
    ERROR,
    UNDEFINED,
    Absent,
    AbsTime,
    ListValue,
    Missing,
    Record,
    RelTime,
    Truth,
    Value,
)

INT_MIN, INT_MAX = -(2**63), 2**63 - 1


def wrap(number: int) -> int:
    """Return `number` as 64-bit arithmetic leaves it."""
    return (number - INT_MIN) % 2**64 + INT_MIN


def truth(value: Value) -> Truth:
    """Return a condition's value: numbers count as true unless 0; other types are errors."""
    if isinstance(value, bool | Missing):
        return value
    return value != 0 if isinstance(value, int | float) else ERROR


def absent(*values: Value) -> Absent | None:
    """Return what an operator that needs all its operands gives if one is missing.

    An error beats undefined, whichever comes first.
    """
    if ERROR in values:
        return ERROR
    return UNDEFINED if UNDEFINED in values else None


def fold_text(text: str) -> str:
    """Return `text` with ASCII letters in lower case: case beyond ASCII is not folded."""
    return text.lower() if text.isascii() else text.translate(_LOWER)


def upper_text(text: str) -> str:
    """Return `text` with ASCII letters in upper case."""
    return text.upper() if text.isascii() else text.translate(_UPPER)


_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_UPPER = {lower: upper for upper, lower in _LOWER.items()}


def identical(left: Value, right: Value) -> Value:
    """Return `left is right`: never undefined, no conversion, strings to the letter."""
    if type(left) is not type(right):
        return False
    if isinstance(left, ListValue | Record):
        return ERROR
    return left == right


def binary(operator: str, left: Value, right: Value) -> Value:
    """Return `left operator right` for every operator but the logical ones, which are lazy."""
    if operator == "is":
        return identical(left, right)
    if operator == "isnt":
        same = identical(left, right)
        return same if same is ERROR else not same
    return absent(left, right) or _STRICT[operator](left, right)


def unary(operator: str, value: Value) -> Value:
    """Return `operator value`."""
    if operator == "!":
        true = truth(value)
        return true if isinstance(true, Missing) else not true
    if isinstance(value, Missing):
        return value
    if isinstance(value, bool):
        return ERROR
    if operator == "~":
        return ~value if isinstance(value, int) else ERROR
    return _signed(operator == "-", value)


def _signed(negative: bool, value: Value) -> Value:
    match value:
        case int():
            return wrap(-value) if negative else value
        case float():
            return -value if negative else value
        case RelTime(seconds):
            return RelTime(-seconds) if negative else value
        case _:
            return ERROR


def _comparison(compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], Value]:
    def apply(left: Value, right: Value) -> Value:
        match left, right:
            case ((int() | float()), (int() | float())):
                if type(left) is not type(right):
                    left, right = _alike(left, right)
                return compare(left, right)
            case str(), str():
                return compare(fold_text(left), fold_text(right))
            case (AbsTime(a), AbsTime(b)) | (RelTime(a), RelTime(b)):
                return compare(a, b)
            case _:
                return ERROR

    return apply


def _alike(left: int | float, right: int | float) -> tuple[int | float, int | float]:
    """Return both as doubles if one is: as C compares, so 2**53 + 1 equals 2.0**53."""
    if isinstance(left, float) or isinstance(right, float):
        return float(left), float(right)
    return int(left), int(right)


def _arithmetic(
    whole: Callable[[int, int], Value],
    real: Callable[[float, float], float] | None,
    times: Callable[[Value, Value], Value],
) -> Callable[[Value, Value], Value]:
    def apply(left: Value, right: Value) -> Value:
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            return times(left, right)
        a, b = _alike(left, right)
        if isinstance(a, int) and isinstance(b, int):
            return whole(a, b)
        if real is None:
            return ERROR
        result = real(a, b)
        return ERROR if result == math.inf else result

    return apply


def _divide(left: int, right: int) -> Value:
    if right == 0:
        return ERROR
    quotient = abs(left) // abs(right)  # C truncates towards zero
    return min(quotient if (left < 0) == (right < 0) else -quotient, INT_MAX)


def _remainder(left: int, right: int) -> Value:
    if right == 0:
        return ERROR
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def _real_divide(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def _shift(move: Callable[[int, int], int]) -> Callable[[int, int], int]:
    # Counts outside 0..63 are undefined in C; x86 takes them modulo 64.
    return lambda left, right: wrap(move(left, right % 64))


def _bits(operate: Callable[[int, int], int]) -> Callable[[Value, Value], Value]:
    def apply(left: Value, right: Value) -> Value:
        if type(left) is not int or type(right) is not int:
            return ERROR
        return operate(left, right)

    return apply


def _add_times(left: Value, right: Value) -> Value:
    match left, right:
        case AbsTime(seconds, offset), RelTime(span):
            return _moved(seconds, span, offset)
        case RelTime(span), AbsTime(seconds, offset):
            return _moved(seconds, span, offset)
        case RelTime(a), RelTime(b):
            return RelTime(a + b)
        case _:
            return ERROR


def _subtract_times(left: Value, right: Value) -> Value:
    match left, right:
        case AbsTime(a), AbsTime(b):
            return RelTime(float(a - b))
        case AbsTime(seconds, offset), RelTime(span):
            return _moved(seconds, -span, offset)
        case RelTime(a), RelTime(b):
            return RelTime(a - b)
        case _:
            return ERROR


def _moved(seconds: int, span: float, offset: int) -> Value:
    return AbsTime(wrap(seconds + int(span)), offset) if math.isfinite(span) else ERROR


def _multiply_times(left: Value, right: Value) -> Value:
    match left, right:
        case (RelTime(span), (int() | float()) as factor) | (
            (int() | float()) as factor,
            RelTime(span),
        ) if not isinstance(factor, bool):
            return RelTime(span * factor)
        case _:
            return ERROR


def _divide_times(left: Value, right: Value) -> Value:
    match left, right:
        case RelTime(span), (int() | float()) if not isinstance(right, bool):
            return RelTime(_real_divide(span, float(right)))
        case _:
            return ERROR


def _no_times(_left: Value, _right: Value) -> Value:
    return ERROR


_STRICT: Mapping[str, Callable[[Value, Value], Value]] = {
    "+": _arithmetic(lambda a, b: wrap(a + b), python.add, _add_times),
    "-": _arithmetic(lambda a, b: wrap(a - b), python.sub, _subtract_times),
    "*": _arithmetic(lambda a, b: wrap(a * b), python.mul, _multiply_times),
    "/": _arithmetic(_divide, _real_divide, _divide_times),
    "%": _arithmetic(_remainder, None, _no_times),
    "&": _bits(python.and_),
    "|": _bits(python.or_),
    "^": _bits(python.xor),
    "<<": _bits(_shift(python.lshift)),
    ">>": _bits(_shift(python.rshift)),
    ">>>": _bits(_shift(lambda a, b: (a % 2**64) >> b)),
    "==": _comparison(python.eq),
    "!=": _comparison(python.ne),
    "<": _comparison(python.lt),
    "<=": _comparison(python.le),
    ">": _comparison(python.gt),
    ">=": _comparison(python.ge),
}
