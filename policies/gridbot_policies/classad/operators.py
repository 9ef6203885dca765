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
    bytes_of,
    text_of_bytes,
)

INT_MIN, INT_MAX = -(2**63), 2**63 - 1


def wrap(number: int) -> int:
    """Return `number` as 64-bit arithmetic leaves it."""
    return (number - INT_MIN) % 2**64 + INT_MIN


def truth(value: Value) -> Truth:
    """Return a condition's value: numbers count as true unless 0; other types are errors."""
    kind = type(value)
    if kind is bool or kind is Missing:
        return value  # type: ignore[return-value]  # by its type
    return value != 0 if kind is int or kind is float else ERROR


def absent(*values: Value) -> Absent | None:
    """Return what an operator that needs all its operands gives if one is missing.

    An error beats undefined, whichever comes first.
    """
    found = None
    for value in values:
        if value is ERROR:
            return ERROR
        if value is UNDEFINED:
            found = UNDEFINED
    return found


def fold_text(text: str) -> str:
    """Return `text` with ASCII letters in lower case: case beyond ASCII is not folded."""
    return text.lower() if text.isascii() else text_of_bytes(bytes_of(text).lower())


def upper_text(text: str) -> str:
    """Return `text` with ASCII letters in upper case."""
    return text.upper() if text.isascii() else text_of_bytes(bytes_of(text).upper())


def identical(left: Value, right: Value) -> Value:
    """Return `left is right`: never undefined, no conversion, strings to the letter."""
    if type(left) is not type(right):
        return False
    if isinstance(left, ListValue | Record):
        return ERROR
    return left == right


def different(left: Value, right: Value) -> Value:
    """Return `left isnt right`."""
    same = identical(left, right)
    return same if same is ERROR else not same


def logical(decisive: bool, left: Truth, right: Truth) -> Truth:
    """Return `left || right` (true is decisive) or `left && right` (false is) of two conditions.

    The left one is neither decisive nor an error: then the right one is not even looked at.
    """
    if right is ERROR or right is decisive:
        return right
    return UNDEFINED if left is UNDEFINED or right is UNDEFINED else not decisive


def binary(operator: str, left: Value, right: Value) -> Value:
    """Return `left operator right` for every operator but the logical ones, which are lazy."""
    return BINARY[operator](left, right)


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
        kind = type(left)
        if kind is type(right):
            if kind is int or kind is float:
                return compare(left, right)
            if kind is str:
                return compare(_collated(left), _collated(right))  # type: ignore[arg-type]  # by its type
        return _compared(compare, left, right)

    return apply


def _compared(compare: Callable[[Any, Any], bool], left: Value, right: Value) -> Value:
    match left, right:
        case ((int() | float()), (int() | float())):
            return compare(*_alike(left, right))
        case (AbsTime(a), AbsTime(b)) | (RelTime(a), RelTime(b)):
            return compare(a, b)
        case _:
            return absent(left, right) or ERROR


def _collated(text: str) -> bytes:
    """Return what strings are ordered by: their bytes, with ASCII letters in lower case."""
    return bytes_of(text).lower()  # of bytes, Python folds ASCII alone


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
            return absent(left, right) or times(left, right)
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
            return absent(left, right) or ERROR
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


# Every operator but the logical ones.
BINARY: Mapping[str, Callable[[Value, Value], Value]] = {
    "is": identical,
    "isnt": different,
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
