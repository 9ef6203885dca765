"""What a BOT says of how its answers are compared: `exact`, `numbers:rel=1e-6`, `command:./cmp`."""

from __future__ import annotations

import math
import posixpath
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

MAX_SPEC_BYTES = 1000


class UnknownValidator(ValueError):
    """A text that names no validator, or gives one an option that it does not have."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How near two numbers must be: as `math.isclose` says (PEP 485), which is symmetric."""

    rel: float = 1e-6
    abs: float = 0.0
    nan_is_equal: bool = False

    def __str__(self) -> str:
        return f"rel={self.rel:g}, abs={self.abs:g}"


@dataclass(frozen=True, slots=True)
class Validator:
    """A rule by which two answers agree.  It is symmetric, and need not be transitive."""

    kind: str
    tolerance: Tolerance = field(default_factory=Tolerance)
    ignored: tuple[str, ...] = ()  # JSON Pointers, of `json`
    argv: tuple[str, ...] = ()  # of `command`: the program's path and its arguments

    @property
    def reads_contents(self) -> bool:
        """Whether digests alone may leave it undecided."""
        return self.kind != "exact"

    @property
    def accepts_equal_bytes(self) -> bool:
        """Whether equal bytes always agree: not if a NaN among them agrees with nothing."""
        return self.kind not in ("numbers", "json") or self.tolerance.nan_is_equal

    @property
    def program(self) -> str:
        """Name under which a command's program lies in its directory."""
        return posixpath.basename(self.argv[0]) if self.argv else ""

    def agree_by_digest(self, one: bytes | None, other: bytes | None) -> bool | None:
        """Compare the digests of two answers; None: only their contents tell.

        A digest is one hash over the names and contents of all outputs; without it nothing agrees.
        """
        if one is None or other is None:
            return False
        if self.kind == "exact":
            return one == other
        return True if one == other and self.accepts_equal_bytes else None


EXACT = Validator("exact")


class _Kind(NamedTuple):
    """What may follow a validator's name."""

    read: Callable[[str], Validator]
    form: str  # for messages


def parse(text: str) -> Validator:
    """Read what a BOT asks for.  Raises UnknownValidator that names what is wrong."""
    name, colon, options = text.partition(":")
    if name not in _KINDS:
        forms = ", ".join(kind.form for kind in _KINDS.values())
        raise UnknownValidator(f"unknown validator {text[:200]!r}; known: {forms}")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_SPEC_BYTES:
        raise UnknownValidator(f"validator {name}: longer than {MAX_SPEC_BYTES} bytes")
    if colon and not options:
        raise UnknownValidator(f"validator {text!r}: nothing follows the colon")
    return _KINDS[name].read(options)


def _without_options(kind: str) -> Callable[[str], Validator]:
    def read(options: str) -> Validator:
        if options:
            raise UnknownValidator(f"validator {kind} has no options, got {options!r}")
        return Validator(kind)

    return read


def _numbers(options: str) -> Validator:
    values = dict(_pairs("numbers", options, ("rel", "abs", "nan")))
    return Validator("numbers", _tolerance("numbers", values))


def _json(options: str) -> Validator:
    pairs = list(_pairs("json", options, ("rel", "abs", "nan", "ignore")))
    ignored = tuple(value for name, value in pairs if name == "ignore")
    for pointer in ignored:
        if not pointer.startswith("/"):
            raise UnknownValidator(
                f"validator json: ignore={pointer} is no path; write it as /time or /runs/*/time"
            )
    return Validator("json", _tolerance("json", dict(pairs)), ignored)


def _command(options: str) -> Validator:
    try:
        argv = tuple(shlex.split(options))
    except ValueError as error:
        raise UnknownValidator(f"validator command:{options} cannot be split: {error}") from None
    if not argv or not posixpath.basename(argv[0]):
        raise UnknownValidator("validator command names no program; write command:./compare")
    return Validator("command", argv=argv)


_KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        "exact": _Kind(_without_options("exact"), "exact"),
        "text": _Kind(_without_options("text"), "text"),
        "numbers": _Kind(_numbers, "numbers:rel=1e-6,abs=1e-9"),
        "json": _Kind(_json, "json:rel=1e-6,ignore=/time"),
        "command": _Kind(_command, "command:./compare"),
    }
)


def _pairs(kind: str, options: str, known: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for option in options.split(",") if options else ():
        name, equals, value = option.partition("=")
        if name not in known or not equals or not value:
            raise UnknownValidator(
                f"validator {kind}: {option!r} is none of its options;"
                f" known: {', '.join(f'{each}=…' for each in known)}"
            )
        if name in seen and name != "ignore":
            raise UnknownValidator(f"validator {kind}: {name} is given twice")
        seen.add(name)
        yield name, value


def _tolerance(kind: str, values: Mapping[str, str]) -> Tolerance:
    default = Tolerance()
    rel = _number(kind, "rel", values.get("rel"), default.rel)
    if rel >= 1:
        raise UnknownValidator(f"validator {kind}: rel={values['rel']} must be below 1")
    nan = values.get("nan", "different")
    if nan not in ("equal", "different"):
        raise UnknownValidator(f"validator {kind}: nan={nan} must be equal or different")
    absolute = _number(kind, "abs", values.get("abs"), default.abs)
    return Tolerance(rel, absolute, nan == "equal")


def _number(kind: str, name: str, text: str | None, default: float) -> float:
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf or "_" in text:
        raise UnknownValidator(f"validator {kind}: {name}={text} is no number from 0 up")
    return value
