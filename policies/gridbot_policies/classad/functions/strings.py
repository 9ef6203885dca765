"""Functions of strings, and of strings that hold lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import zip_longest
from typing import TypeVar

from gridbot_policies.classad.functions.call import (
    ANY_NUMBER,
    Call,
    Function,
    eager,
    is_int,
    real_of_text,
    text_of,
    whole,
)
from gridbot_policies.classad.operators import absent, fold_text, upper_text
from gridbot_policies.classad.values import ERROR, UNDEFINED, Missing, Value

T = TypeVar("T")


@eager(0, ANY_NUMBER)
def _strcat(call: Call, *values: Value) -> Value:
    texts: list[str] = []
    for value in values:
        text = text_of(call, value)
        if isinstance(text, Missing):
            return text
        texts.append(text)
    return call.text(texts)


def _recased(change: Callable[[str], str]) -> Function:
    def apply(call: Call, value: Value) -> Value:
        text = text_of(call, value)
        return text if isinstance(text, Missing) else change(text)

    return Function(apply, 1, 1)


@eager(2, 3)
def _substr(_call: Call, text: Value, offset: Value, length: Value | None = None) -> Value:
    if UNDEFINED in (text, offset, length):
        return UNDEFINED
    if not isinstance(text, str) or not isinstance(offset, int) or not is_int(offset):
        return ERROR
    data = text.encode("utf-8", "surrogatepass")
    start = max(offset + len(data), 0) if offset < 0 else offset
    end = len(data)
    if length is not None:
        if not isinstance(length, int) or not is_int(length):
            return ERROR
        end = max(end + length, 0) if length < 0 else start + length
    return data[start : max(start, end)].decode("utf-8", "replace")


def _on_texts(apply: Callable[[str, str], Value], most: int = 2) -> Function:
    """Make a function of two values' texts; undefined beats error."""

    def of_values(call: Call, left: Value, right: Value) -> Value:
        if UNDEFINED in (left, right):
            return UNDEFINED
        a, b = text_of(call, left), text_of(call, right)
        return ERROR if isinstance(a, Missing) or isinstance(b, Missing) else apply(a, b)

    return Function(of_values, 2, most)


def _order(left: T, right: T, key: Callable[[T], bytes]) -> int:
    a, b = key(left), key(right)
    return (a > b) - (a < b)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def compare_versions(left: str, right: str) -> int:
    """Return a number below, equal to or above 0; digits compare as numbers.

    Of equal numbers the one with more leading zeros comes first. The size of the
    result has no meaning, but it is HTCondor's.
    """
    runs = (re.findall(r"[0-9]+|[^0-9]", text) for text in (left, right))
    for a, b in zip_longest(*runs, fillvalue="\0"):
        if a != b:
            return _order_runs(a, b) if a.isdigit() and b.isdigit() else ord(a[0]) - ord(b[0])
    return 0


def _order_runs(left: str, right: str) -> int:
    zeros = _leading_zeros(right) - _leading_zeros(left)
    unlike = next((ord(a) - ord(b) for a, b in zip(left, right, strict=False) if a != b), 0)
    return zeros or len(left) - len(right) or unlike


def _leading_zeros(digits: str) -> int:
    return len(digits) - 1 - len(digits[:-1].lstrip("0"))


@eager(3)
def _version_in_range(call: Call, version: Value, least: Value, most: Value) -> Value:
    if UNDEFINED in (least, most):
        return UNDEFINED
    texts = [text_of(call, value) for value in (version, least, most)]
    found = [text for text in texts if isinstance(text, str)]
    if len(found) < 3:
        return ERROR
    return compare_versions(found[0], found[1]) >= 0 >= compare_versions(found[0], found[2])


def items_of(text: str, delimiters: str) -> list[str]:
    """Return the items of a string list: trimmed, empty ones dropped."""
    pattern = f"[{re.escape(delimiters)}]" if delimiters else r"(?!)"
    return [item for raw in re.split(pattern, text) if (item := raw.strip(" \t\r\n"))]


@eager(1, 2)
def _string_list_size(_call: Call, text: Value, delimiters: Value = ", ") -> Value:
    if not isinstance(text, str) or not isinstance(delimiters, str):
        return ERROR
    return len(items_of(text, delimiters))


def _of_numbers(combine: Callable[[list[float]], float], empty: Value) -> Function:
    def apply(_call: Call, text: Value, delimiters: Value = ", ") -> Value:
        if not isinstance(text, str) or not isinstance(delimiters, str):
            return ERROR
        items = items_of(text, delimiters)
        if not items:
            return empty
        numbers = [number for item in items if (number := real_of_text(item)) is not None]
        if len(numbers) < len(items):
            return ERROR
        result = combine(numbers)
        integral = all(re.fullmatch(r"[-+0-9]*", item) for item in items)
        return whole(result) if integral else result

    return Function(apply, 1, 2)


_LIST_GAPS = ", \t\r\n"


def _membership(ignoring_case: bool, subset: bool) -> Function:
    def apply(_call: Call, items: Value, text: Value, delimiters: Value = _LIST_GAPS) -> Value:
        if items is UNDEFINED and text is UNDEFINED:
            return UNDEFINED
        given = ["" if value is UNDEFINED else value for value in (items, text, delimiters)]
        texts = [value for value in given if isinstance(value, str)]
        if len(texts) < 3:
            return ERROR
        if ignoring_case:
            texts = [fold_text(value) for value in texts]
        wanted = items_of(texts[0], texts[2]) if subset else [texts[0]]
        return set(wanted) <= set(items_of(texts[1], texts[2]))

    return Function(apply, 2, 3)


@eager(2, 3)
def _string_lists_intersect(
    _call: Call, left: Value, right: Value, delimiters: Value = ", "
) -> Value:
    if missing := absent(left, right, delimiters):
        return missing
    if not (isinstance(left, str) and isinstance(right, str) and isinstance(delimiters, str)):
        return ERROR
    return bool(set(items_of(left, delimiters)) & set(items_of(right, delimiters)))


TABLE = {
    "strcat": _strcat,
    "toupper": _recased(upper_text),
    "tolower": _recased(fold_text),
    "substr": _substr,
    "strcmp": _on_texts(lambda a, b: _order(a, b, _bytes)),
    "stricmp": _on_texts(lambda a, b: _order(a, b, lambda text: _bytes(fold_text(text)))),
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
    "stringlistmin": _of_numbers(min, UNDEFINED),
    "stringlistmax": _of_numbers(max, UNDEFINED),
    "stringlistmember": _membership(ignoring_case=False, subset=False),
    "stringlistimember": _membership(ignoring_case=True, subset=False),
    "stringlistsubsetmatch": _membership(ignoring_case=False, subset=True),
    "stringlistisubsetmatch": _membership(ignoring_case=True, subset=True),
    "stringlistsintersect": _string_lists_intersect,
}
