"""Parameters of the query string: how each is read, and how the API's description shows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flask import request

from gridbot_client.protocol.messages import MAX_BIGINT
from gridbot_server.errors import RequestError

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the query string; `read` raises RequestError for a value that is none."""

    text: str  # what it is for
    schema: Mapping[str, Any]
    read: Callable[[str, str], object] = lambda _, value: value
    default: object = None
    required: bool = False

    def value(self, name: str) -> object:
        """Return what this request says."""
        text = request.args.get(name)
        if text is not None:
            if "\0" in text:  # which PostgreSQL's texts cannot hold
                raise RequestError(f"{name}: expected a text without NUL, got {text[:60]!r}")
            return self.read(name, text)
        if self.required:
            raise RequestError(f"{name}: missing in the URL")
        return self.default


def number(
    text: str, default: int | None = None, least: int = 0, most: int = MAX_BIGINT,
    required: bool = False,
) -> Parameter:  # fmt: skip
    """A whole number from `least` to `most`."""

    def read(name: str, value: str) -> int:
        is_number = value.isascii() and value.isdigit() and len(value) < 20
        if not (is_number and least <= int(value) <= most):
            raise RequestError(
                f"{name}: expected a whole number from {least} to {most}, got {value[:60]!r}"
            )
        return int(value)

    schema = {"type": "integer", "minimum": least, "maximum": most}
    return Parameter(text, schema, read, default, required)


def one_of(text: str, words: Sequence[str]) -> Parameter:
    """One of some words, or nothing."""

    def read(name: str, value: str) -> str:
        if value not in words:
            raise RequestError(f"{name}: expected one of {', '.join(words)}, got {value[:60]!r}")
        return value

    return Parameter(text, {"type": "string", "enum": list(words)}, read)


def sha256(text: str) -> Parameter:
    """A SHA-256 in lower-case hex, which must be there."""
    schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    return Parameter(text, schema, lambda _, value: checked_sha256(value), required=True)


def is_sha256(text: str) -> bool:
    """Tell whether a text is a SHA-256 in lower-case hex."""
    return _SHA256.fullmatch(text) is not None


def checked_sha256(text: str) -> str:
    """Return a hash of the URL; raise RequestError for anything else."""
    if not is_sha256(text):
        raise RequestError("sha256: expected 64 lower-case hexadecimal digits in the URL")
    return text
