"""Validators of untrusted fields: each returns a bounded value or raises ProtocolError."""

from __future__ import annotations

import binascii
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MAX_NAME_BYTES = 200
MAX_BIGINT = 2**63 - 1
MAX_INT = 2**31 - 1
STREAMS = ("stdout", "stderr")  # outputs that are captured, and no files of a program

Scalar = str | int | float | bool

_SHA256 = re.compile(r"[0-9a-f]{64}")
_FIRST_PART = r"[A-Za-z0-9_][A-Za-z0-9._+=@%-]*"
_LATER_PART = r"(?!\.\.?(?:/|$))[A-Za-z0-9_.][A-Za-z0-9._+=@%-]*"  # may begin with a dot
_FILE_NAME = re.compile(rf"{_FIRST_PART}(/{_LATER_PART})*")


class ProtocolError(Exception):
    """The message is malformed; names the field.  Repeating it does not help."""


def parse(text: bytes | str, loads: Callable[[bytes], Any] = json.loads) -> object:
    """Parse JSON.  Raises ProtocolError, also for JSON that is nested too deep."""
    try:
        return loads(text.encode() if isinstance(text, str) else text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not valid JSON: {str(error)[:100]}") from None


def mapping(raw: object, where: str) -> Mapping[str, Any]:
    """Validate an object."""
    if not isinstance(raw, dict):
        raise ProtocolError(f"{where}: expected an object, got {kind(raw)}")
    return raw


def listing(raw: Mapping[str, Any], name: str, most: int) -> Sequence[Any]:
    """List in field `name`, empty if it is missing; of at most `most` entries."""
    value = raw.get(name, [])
    if not isinstance(value, list):
        raise ProtocolError(f"{name}: expected a list, got {kind(value)}")
    if len(value) > most:
        raise ProtocolError(f"{name}: {len(value)} entries, at most {most}")
    return value


def text(raw: object, where: str, most: int) -> str:
    """Validate a string of at most `most` bytes without NUL and lone surrogates."""
    if isinstance(raw, str) and is_clean(raw, most):
        return raw
    if not isinstance(raw, str) or len(raw.encode("utf-8", "replace")) > most:
        raise ProtocolError(f"{where}: expected a string of at most {most} bytes")
    if "\x00" in raw:
        raise ProtocolError(f"{where}: NUL characters are not allowed")
    raise ProtocolError(f"{where}: not valid Unicode (lone surrogate)")


def is_clean(text: str, most: int) -> bool:
    """True for a text of at most `most` bytes without NUL and lone surrogates."""
    if len(text) > most or "\x00" in text:
        return False
    if text.isascii():
        return True
    try:
        return len(text.encode()) <= most
    except UnicodeEncodeError:
        return False


def string(raw: Mapping[str, Any], name: str, most: int, default: str | None = None) -> str:
    """String in field `name`, of at most `most` bytes."""
    return text(raw.get(name, default), name, most)


def integer(
    raw: Mapping[str, Any], name: str, least: int, most: int, default: int | None = None
) -> int:
    """Whole number in field `name`, from `least` to `most`."""
    value = raw.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ProtocolError(f"{name}: expected a whole number, got {kind(value)}")
    if not least <= value <= most:
        raise ProtocolError(f"{name}: {value} is not in {least}..{most}")
    return value


def number(
    raw: Mapping[str, Any], name: str, least: float, most: float, default: float | None = None
) -> float:
    """Number in field `name`, clamped, so that a client with a broken clock can report."""
    value = raw.get(name, least if default is None else default)
    if type(value) is float and least <= value <= most:
        return value
    if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
        raise ProtocolError(f"{name}: expected a number, got {kind(value)}")
    return float(min(max(value, least), most))


def scalar(raw: object, where: str, most: int) -> Scalar:
    """Validate a value of an ad: a string, a finite number or a Boolean."""
    if isinstance(raw, str):
        return text(raw, where, most)
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, int) and abs(raw) <= MAX_BIGINT:
        return raw
    if isinstance(raw, float) and math.isfinite(raw):
        return raw
    return text(raw, where, most)


def sha256(raw: object, where: str) -> str:
    """Validate a SHA-256 in lower-case hex."""
    if not isinstance(raw, str) or not is_sha256(raw):
        raise ProtocolError(f"{where}: expected a SHA-256 of 64 lower-case hex digits")
    return raw


def is_sha256(text: str) -> bool:
    """True for a SHA-256 in lower-case hex."""
    return _SHA256.fullmatch(text) is not None


def content(raw: object, where: str) -> bytes | None:
    """Decode base64; None stays None."""
    if raw is None:
        return None
    try:
        return binascii.a2b_base64(raw if isinstance(raw, str) else b"*", strict_mode=True)
    except ValueError:
        raise ProtocolError(f"{where}: expected base64") from None


def one_of(raw: object, where: str, allowed: Sequence[str]) -> str:
    """Validate one of the `allowed` words."""
    if not isinstance(raw, str) or raw not in allowed:
        raise ProtocolError(f"{where}: expected one of {', '.join(allowed)}, got {kind(raw)}")
    return raw


def kind(value: object) -> str:
    """Type and beginning of a value, for an error message."""
    return "nothing" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"


def file_name(raw: object, where: str) -> str:
    """Validate a relative path of plain characters that cannot leave its directory."""
    name = text(raw, where, MAX_NAME_BYTES)
    if not is_file_name(name):
        raise ProtocolError(
            f"{where}: {name!r} is not a usable file name"
            " (letters, digits and ._+=@%- in parts that do not begin with a dash; the first part"
            " does not begin with a dot either)"
        )
    return name


def is_file_name(text: str) -> bool:
    """True for a name that `file_name` takes."""
    return len(text) <= MAX_NAME_BYTES and _FILE_NAME.fullmatch(text) is not None
