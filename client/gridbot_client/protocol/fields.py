"""Readers of fields that come from outside: each gives a bounded value, or a ProtocolError."""

from __future__ import annotations

import binascii
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

MAX_NAME_BYTES = 200
MAX_BIGINT = 2**63 - 1

Scalar = str | int | float | bool

_SHA256 = re.compile(r"[0-9a-f]{64}")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=@%-]*(/[A-Za-z0-9_][A-Za-z0-9._+=@%-]*)*")


class ProtocolError(Exception):
    """The message is malformed; says which field, and will stay wrong when repeated."""


def parse(text: bytes | str, loads: Callable[[bytes], Any] = json.loads) -> object:
    """Read JSON; what is none, or nests too deep, is a ProtocolError."""
    try:
        return loads(text.encode() if isinstance(text, str) else text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not a JSON document: {str(error)[:100]}") from None


def mapping(raw: object, where: str) -> Mapping[str, Any]:
    """The value, if it is an object."""
    if not isinstance(raw, dict):
        raise ProtocolError(f"{where}: an object is expected, not {kind(raw)}")
    return raw


def listing(raw: Mapping[str, Any], name: str, most: int) -> Sequence[Any]:
    """The list under a name, empty if it is missing; of at most `most` entries."""
    value = raw.get(name, [])
    if not isinstance(value, list):
        raise ProtocolError(f"{name}: a list is expected, not {kind(value)}")
    if len(value) > most:
        raise ProtocolError(f"{name}: {len(value)} entries, at most {most}")
    return value


def text(raw: object, where: str, most: int) -> str:
    """The value, if it is a clean string of at most `most` bytes."""
    if is_short_ascii(raw, most):
        return raw
    try:
        if not isinstance(raw, str) or len(raw.encode()) > most:
            raise ProtocolError(f"{where}: a string of at most {most} bytes is expected")
    except UnicodeEncodeError:  # half of a surrogate pair
        raise ProtocolError(f"{where}: holds a character that no text may hold") from None
    if "\x00" in raw:
        raise ProtocolError(f"{where}: holds a character that no text may hold")
    return raw


def is_short_ascii(raw: object, most: int) -> TypeGuard[str]:
    """Whether the value is a clean string in which bytes are characters: nearly all are."""
    return isinstance(raw, str) and raw.isascii() and len(raw) <= most and "\x00" not in raw


def string(raw: Mapping[str, Any], name: str, most: int, default: str | None = None) -> str:
    """The string under a name."""
    return text(raw.get(name, default), name, most)


def integer(
    raw: Mapping[str, Any], name: str, least: int, most: int, default: int | None = None
) -> int:
    """The whole number under a name, within its bounds."""
    value = raw.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ProtocolError(f"{name}: a whole number is expected, not {kind(value)}")
    if not least <= value <= most:
        raise ProtocolError(f"{name}: {value} is outside {least}..{most}")
    return value


def number(
    raw: Mapping[str, Any], name: str, least: float, most: float, default: float | None = None
) -> float:
    """A number, clamped: a client with a broken clock still reports."""
    value = raw.get(name, least if default is None else default)
    if type(value) is float and least <= value <= most:
        return value
    if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
        raise ProtocolError(f"{name}: a number is expected, not {kind(value)}")
    return float(min(max(value, least), most))


def scalar(raw: object, where: str, most: int) -> Scalar:
    """The value, if an ad can hold it: a string, a finite number or a truth value."""
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, int) and abs(raw) <= MAX_BIGINT:
        return raw
    if isinstance(raw, float) and math.isfinite(raw):
        return raw
    return text(raw, where, most)


def sha256(raw: object, where: str) -> str:
    """The value, if it is a SHA-256 in lower-case hex."""
    if not isinstance(raw, str) or not _SHA256.fullmatch(raw):
        raise ProtocolError(f"{where}: a SHA-256 in hex is expected")
    return raw


def content(raw: object, where: str) -> bytes | None:
    """The bytes that a base64 text stands for; None stays None."""
    if raw is None:
        return None
    try:
        return binascii.a2b_base64(raw if isinstance(raw, str) else b"*", strict_mode=True)
    except ValueError:
        raise ProtocolError(f"{where}: base64 is expected") from None


def one_of(raw: object, where: str, allowed: Sequence[str]) -> str:
    """The value, if it is one of the allowed words."""
    if not isinstance(raw, str) or raw not in allowed:
        raise ProtocolError(f"{where}: {raw!r} is none of {', '.join(allowed)}")
    return raw


def kind(value: object) -> str:
    """How an error names a value that is not what was expected."""
    return "nothing" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"


def file_name(raw: object, where: str) -> str:
    """A relative path of plain characters that cannot leave its directory."""
    name = text(raw, where, MAX_NAME_BYTES)
    if not _FILE_NAME.fullmatch(name):
        raise ProtocolError(
            f"{where}: {name!r} is not a usable file name"
            " (letters, digits and ._+=@%- in parts that do not begin with a dot or a dash)"
        )
    return name
