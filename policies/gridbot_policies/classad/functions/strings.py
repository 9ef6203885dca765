"""Functions of strings, and of strings that hold lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import TypeVar

from gridbot_policies.classad.functions.call import (
    ANY_NUMBER,
    CallContext,
    Function,
    eager,
    int32,
    joined,
    real_of_text,
    text_of,
    whole,
)
from gridbot_policies.classad.operators import absent, fold_text, upper_text
from gridbot_policies.classad.values import (
    ERROR,
    UNDEFINED,
    Missing,
    Value,
    bytes_of,
    text_of_bytes,
)

T = TypeVar("T")


@eager(0, ANY_NUMBER)
def _strcat(call: CallContext, *values: Value) -> Value:
    texts: list[str] = []
    for value in values:
        text = text_of(call, value)
        if isinstance(text, Missing):
            return text
        texts.append(text)
    return joined(call, texts)


def _recased(change: Callable[[str], str]) -> Function:
    def apply(call: CallContext, value: Value) -> Value:
        text = text_of(call, value)
        return text if isinstance(text, Missing) else change(text)

    return Function(apply, 1, 1)


@eager(2, 3)
def _substr(_call: CallContext, text: Value, offset: Value, length: Value | None = None) -> Value:
    if UNDEFINED in (text, offset, length):
        return UNDEFINED
    if not isinstance(text, str) or type(offset) is not int:
        return ERROR
    data = bytes_of(text)
    start, end = int32(offset), len(data)
    if start < 0:
        start = max(start + end, 0)
    if length is not None:
        if type(length) is not int:
            return ERROR
        count = int32(length)
        end = end + count if count < 0 else start + count
    return text_of_bytes(data[start : max(start, end)])


def _on_texts(apply: Callable[[str, str], Value], most: int = 2) -> Function:
    """Make a function of two values' texts; undefined beats error."""

    def of_values(call: CallContext, left: Value, right: Value) -> Value:
        if UNDEFINED in (left, right):
            return UNDEFINED
        a, b = text_of(call, left), text_of(call, right)
        return ERROR if isinstance(a, Missing) or isinstance(b, Missing) else apply(a, b)

    return Function(of_values, 2, most)


def _order(left: T, right: T, key: Callable[[T], bytes]) -> int:
    a, b = key(left), key(right)
    return (a > b) - (a < b)


def compare_versions(left: str, right: str) -> int:
    """Return a number below, equal to or above 0; digits compare as numbers.

    Of equal numbers the one with more leading zeros comes first. The size of the
    result has no meaning, but it is HTCondor's.
    """
    a, b = bytes_of(left) + b"\0", bytes_of(right) + b"\0"
    unlike = next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    if unlike is None:
        return 0
    order = _signed(a[unlike]) - _signed(b[unlike])
    begin = len(a[:unlike].rstrip(b"0123456789"))
    runs = [_DIGITS.match(text, begin)[0] for text in (a, b)]  # type: ignore[index]  # may be empty
    if begin == unlike and not all(runs):
        return order
    zeros = [_leading_zeros(run) for run in runs]
    if zeros[0] != zeros[1]:
        return zeros[1] - zeros[0]
    return order if zeros[0] else len(runs[0]) - len(runs[1]) or order


_DIGITS = re.compile(rb"[0-9]*")


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _leading_zeros(digits: bytes) -> int:
    return max(len(digits) - 1 - len(digits[:-1].lstrip(b"0")), 0)


@eager(3)
def _version_in_range(call: CallContext, version: Value, least: Value, most: Value) -> Value:
    if UNDEFINED in (least, most):
        return UNDEFINED
    texts = [text_of(call, value) for value in (version, least, most)]
    found = [text for text in texts if isinstance(text, str)]
    if len(found) < 3:
        return ERROR
    return compare_versions(found[0], found[1]) >= 0 >= compare_versions(found[0], found[2])


def items_of(call: CallContext, text: str, delimiters: str) -> list[str]:
    """Return the items of a string list: trimmed, empty ones dropped."""
    call.spend(len(text) // 8)
    pattern = f"[{re.escape(delimiters)}]" if delimiters else r"(?!)"
    return [item for raw in re.split(pattern, text) if (item := raw.strip(" \t\n\v\f\r"))]


@eager(1, 2)
def _string_list_size(call: CallContext, text: Value, delimiters: Value = ", ") -> Value:
    if not isinstance(text, str) or not isinstance(delimiters, str):
        return ERROR
    return len(items_of(call, text, delimiters))


def _of_numbers(combine: Callable[[list[float]], float], empty: Value) -> Function:
    def apply(call: CallContext, text: Value, delimiters: Value = ", ") -> Value:
        if not isinstance(text, str) or not isinstance(delimiters, str):
            return ERROR
        items = items_of(call, text, delimiters)
        if not items:
            return empty
        numbers = [number for item in items if (number := _scanned(item)) is not None]
        if len(numbers) < len(items):
            return ERROR
        result = combine(numbers)
        integral = all(re.fullmatch(r"[-+0-9]*", item) for item in items)
        return whole(result) if integral else result

    return Function(apply, 1, 2)


def _scanned(item: str) -> float | None:
    """Return the number that an item begins with; unlike elsewhere, 0x needs a digit."""
    return None if re.match(r"[-+]?0[xX](?![.0-9a-fA-F])", item) else real_of_text(item)


# HTCondor starts from the ends of C's float, and the smallest is above 0: the largest of
# negative numbers is cut to 0.
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127
_SMALLEST_FLOAT = 2.0**-126


def _smallest(numbers: list[float]) -> float:
    return reduce(
        lambda least, number: number if number < least else least, numbers, _LARGEST_FLOAT
    )


def _largest(numbers: list[float]) -> float:
    return reduce(lambda most, number: number if number > most else most, numbers, _SMALLEST_FLOAT)


_LIST_GAPS = ", \t\r\n"


def _membership(ignoring_case: bool, subset: bool) -> Function:
    def apply(
        call: CallContext, items: Value, text: Value, delimiters: Value = _LIST_GAPS
    ) -> Value:
        gaps = _LIST_GAPS if delimiters is UNDEFINED else delimiters
        given = ["" if value is UNDEFINED else value for value in (items, text)]
        texts = [value for value in given if isinstance(value, str)]
        if len(texts) < 2 or not isinstance(gaps, str):
            return ERROR
        if items is UNDEFINED and text is UNDEFINED:
            return UNDEFINED
        wanted = items_of(call, texts[0], gaps) if subset else [texts[0]]
        if subset and not wanted and texts[0]:
            return False  # only "" itself is a subset of everything, not " "
        form = fold_text if ignoring_case else str
        return set(map(form, wanted)) <= set(map(form, items_of(call, texts[1], gaps)))

    return Function(apply, 2, 3)


@eager(2, 3)
def _string_lists_intersect(
    _call: CallContext, left: Value, right: Value, delimiters: Value = ", "
) -> Value:
    if missing := absent(left, right, delimiters):
        return missing
    if not (isinstance(left, str) and isinstance(right, str) and isinstance(delimiters, str)):
        return ERROR
    gap = f"[{re.escape(delimiters or ' ,')}]"  # items are not trimmed, which matters rarely
    return not {"", *re.split(gap, left)}.isdisjoint({*re.split(gap, right)} - {""})


TABLE = {
    "strcat": _strcat,
    "toupper": _recased(upper_text),
    "tolower": _recased(fold_text),
    "substr": _substr,
    "strcmp": _on_texts(lambda a, b: _order(a, b, bytes_of)),
    "stricmp": _on_texts(lambda a, b: _order(a, b, lambda text: bytes_of(fold_text(text)))),
    "versioncmp": _on_texts(compare_versions),
    "versionle": _on_texts(lambda a, b: compare_versions(a, b) <= 0),
    "versionlt": _on_texts(lambda a, b: compare_versions(a, b) < 0),
    "versionge": _on_texts(lambda a, b: compare_versions(a, b) >= 0),
    "versiongt": _on_texts(lambda a, b: compare_versions(a, b) > 0),
    "versioneq": _on_texts(lambda a, b: compare_versions(a, b) == 0),
    "version_in_range": _version_in_range,
    "stringlistsize": _string_list_size,
    "stringlistsum": _of_numbers(sum, 0.0),
    "stringlistavg": _of_numbers(lambda numbers: sum(numbers) / len(numbers), 0.0),
    "stringlistmin": _of_numbers(_smallest, UNDEFINED),
    "stringlistmax": _of_numbers(_largest, UNDEFINED),
    "stringlistmember": _membership(ignoring_case=False, subset=False),
    "stringlistimember": _membership(ignoring_case=True, subset=False),
    "stringlistsubsetmatch": _membership(ignoring_case=False, subset=True),
    "stringlistisubsetmatch": _membership(ignoring_case=True, subset=True),
    "stringlistsintersect": _string_lists_intersect,
}
