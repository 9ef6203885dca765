"""`json`: equal structure, near numbers, whatever the order of keys; without what is ignored.

A number keeps its characters until it is compared, so that none loses digits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from gridbot_server.validators.difference import Difference, excerpt
from gridbot_server.validators.near import near
from gridbot_server.validators.spec import Tolerance

MAX_BYTES = 64 << 20  # of one document
_PIECE = 1 << 18


class _NotJson(Exception):
    """A file that is not compared as JSON; says why."""


@dataclass(frozen=True, slots=True)
class _Number:
    text: str


def difference(
    one: BinaryIO, other: BinaryIO, tolerance: Tolerance, ignored: Sequence[str]
) -> Difference | None:
    """Return a place in which two documents differ, or None.

    Two files that are no JSON agree if their bytes are equal.
    """
    try:
        left = _read(one)
    except _NotJson as error:
        return _difference_of_bytes(one, other, str(error))
    try:
        right = _read(other)
    except _NotJson as error:
        return Difference("the document", "JSON", "no JSON", str(error))
    patterns = [tuple(map(_unescaped, pointer[1:].split("/"))) for pointer in ignored]
    return _walk(left, right, tolerance, patterns)


def _difference_of_bytes(one: BinaryIO, other: BinaryIO, why: str) -> Difference | None:
    one.seek(0)
    other.seek(0)
    while True:
        first, second = one.read(_PIECE), other.read(_PIECE)
        if first != second:
            return Difference("the document", "no JSON", "other bytes", why)
        if not first:
            return None


def _read(file: BinaryIO) -> Any:
    raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise _NotJson(f"larger than {MAX_BYTES >> 20} MiB, which are read as JSON at most")
    try:
        return json.loads(
            raw.decode("utf-8"), parse_int=_Number, parse_float=_Number, parse_constant=_Number,
            object_pairs_hook=_object,
        )  # fmt: skip
    except RecursionError:
        raise _NotJson("nested too deeply") from None
    except MemoryError:
        raise _NotJson("needs too much memory") from None
    except UnicodeDecodeError:
        raise _NotJson("not UTF-8") from None
    except json.JSONDecodeError as error:
        raise _NotJson(f"no JSON: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _NotJson(f"the key {twice[:60]!r} occurs twice in an object")
    return found


def _unescaped(part: str) -> str:
    """RFC 6901, section 4."""
    return part.replace("~1", "/").replace("~0", "~")


def _walk(
    one: Any, other: Any, tolerance: Tolerance, ignored: Sequence[tuple[str, ...]]
) -> Difference | None:
    """Compare two trees without recursion; each step has the patterns that may match below it."""
    steps: list[tuple[str, Any, Any, Sequence[tuple[str, ...]]]] = [("", one, other, ignored)]
    while steps:
        path, left, right, patterns = steps.pop()
        if isinstance(left, dict) and isinstance(right, dict):
            kept = [_kept(item, patterns) for item in (left, right)]
            if kept[0] != kept[1]:
                key = min(kept[0] ^ kept[1])
                has = ("a member", "none") if key in kept[0] else ("none", "a member")
                return Difference(_below(path, key), *has, "not the same members")
            below = [(key, left[key], right[key]) for key in sorted(kept[0], reverse=True)]
        elif isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                sizes = f"{len(left)} elements", f"{len(right)} elements"
                return Difference(path or "/", *sizes, "not the same length")
            below = [
                (str(at), left[at], right[at])
                for at in range(len(left) - 1, -1, -1)
                if not _is_ignored(str(at), patterns)
            ]
        elif _agree(left, right, tolerance):
            continue
        else:
            rule = f"not near: {tolerance}" if _are_numbers(left, right) else "not the same value"
            return Difference(path or "/", _shown(left), _shown(right), rule)
        steps += [
            (_below(path, key), first, second, _deeper(key, patterns))
            for key, first, second in below
        ]
    return None


def _kept(item: Mapping[str, Any], patterns: Sequence[tuple[str, ...]]) -> set[str]:
    return {key for key in item if not _is_ignored(key, patterns)}


def _is_ignored(key: str, patterns: Sequence[tuple[str, ...]]) -> bool:
    return any(len(pattern) == 1 and pattern[0] in (key, "*") for pattern in patterns)


def _deeper(key: str, patterns: Sequence[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:
    return [item[1:] for item in patterns if len(item) > 1 and item[0] in (key, "*")]


def _below(path: str, key: str) -> str:
    return f"{path}/{key.replace('~', '~0').replace('/', '~1')[:60]}"[-400:]


def _are_numbers(one: Any, other: Any) -> bool:
    return isinstance(one, _Number) and isinstance(other, _Number)


def _agree(one: Any, other: Any, tolerance: Tolerance) -> bool:
    if _are_numbers(one, other):
        return near(one.text.encode(), other.text.encode(), tolerance)
    return type(one) is type(other) and bool(one == other)


def _shown(value: Any) -> str:
    match value:
        case _Number(text):
            return excerpt(text.encode())
        case dict():
            return "an object"
        case list():
            return "an array"
        case _:
            return excerpt(json.dumps(value).encode())
