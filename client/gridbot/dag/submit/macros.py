"""Macros of submit descriptions: `$(Name)`, `$(Name:default)`, `$ENV(X)`, `$INT(e,format)`, …"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Mapping
from math import isfinite

from gridbot.dag.submit.errors import SubmitError
from gridbot_policies.classad import ParseError, Value, evaluate, parse

_DEPTH = 40  # of macros in macros
_MOST_BYTES = 1 << 20  # of one expanded value
_START = re.compile(r"\$(\$?)([A-Za-z_]*)\(")
_WIDE = re.compile(r"%[^A-Za-z%]*[0-9]{5}")  # a format of a width beyond reason
_NAME = re.compile(r"[A-Za-z0-9_.+-]+")
_DOLLAR = "\x00"  # stands for a dollar sign that is no macro


class Macros:
    """The names that a description has set so far.  Case does not matter."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._values: dict[str, str] = {}
        self._environment = environment
        self._attributes: dict[str, str] = {}

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of the submitter."""
        return self._environment

    def copy(self) -> Macros:
        """The same names, to be changed for one job."""
        made = Macros(self._environment)
        made._values = dict(self._values)
        made._attributes = dict(self._attributes)
        return made

    def set(self, name: str, value: str) -> None:
        """Set a macro; where the value names it itself, its former value is meant."""
        key = name.casefold()
        if key.startswith(("+", "my.")):
            self._attributes[name.removeprefix("+") if name[0] == "+" else name[3:]] = value
            return
        former = self._values.get(key, "")
        self_reference = re.compile(rf"\$\({re.escape(name)}(?::([^()]*))?\)", re.IGNORECASE)
        self._values[key] = self_reference.sub(lambda found: former or found[1] or "", value)

    def raw(self, name: str) -> str | None:
        """Value of a macro before it is expanded."""
        return self._values.get(name.casefold())

    def get(self, *names: str) -> str | None:
        """Expanded value of the first of these names that is set.  Raises SubmitError."""
        for name in names:
            if (raw := self.raw(name)) is not None:
                return self.expand(raw).strip()
        return None

    def attributes(self) -> dict[str, str]:
        """Expanded values of what is set with + before the name.  Raises SubmitError."""
        return {name: self.expand(value).strip() for name, value in self._attributes.items()}

    def expand(self, text: str) -> str:
        """The text with all macros replaced.  Raises SubmitError."""
        return self._expand(text, 0).replace(_DOLLAR, "$")

    def number(self, text: str, what: str) -> int:
        """Value of an expression that is a whole number.  Raises SubmitError."""
        found = value_of(self.expand(text))
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise SubmitError(f"{what}: {text!r} is no number")
        return whole(found, f"{what}: {text!r}")

    def _expand(self, text: str, depth: int) -> str:
        if depth > _DEPTH:
            raise SubmitError(f"macros in macros, more than {_DEPTH} deep: {text[:80]!r}")
        pieces, at, size = list[str](), 0, 0
        while (found := _START.search(text, at)) is not None:
            end = _closing(text, found.end())
            if end is None:
                break
            pieces.append(text[at : found.start()])
            body = text[found.end() : end]
            if found[1]:  # $$(Attr) is for the machine
                made = text[found.start() : end + 1].replace("$", _DOLLAR)
            elif found[2]:
                called = self._call(found[2], body, depth)
                whole = text[found.start() : end + 1].replace("$", _DOLLAR)
                made = whole if called is None else called
            else:
                made = self._value(body, depth)
            pieces.append(made)
            size += len(made)
            if size > _MOST_BYTES:
                raise SubmitError(f"{text[:80]!r} is more than {_MOST_BYTES} bytes when expanded")
            at = end + 1
        return "".join((*pieces, text[at:]))

    def _value(self, body: str, depth: int) -> str:
        name, colon, default = body.partition(":")
        name = name.strip()
        if name.casefold() == "dollar":
            return _DOLLAR
        value = self.raw(name)
        if value:
            return self._expand(value, depth + 1)
        return self._expand(default, depth + 1) if colon else ""

    def _call(self, function: str, body: str, depth: int) -> str | None:
        """Value of `$FUNCTION(body)`; None for a function that there is not."""
        name = function.upper()
        if name == "ENV":
            return self._of_environment(body, depth)
        words = [self._expand(word, depth + 1).strip() for word in body.split(",")]
        if name.startswith("F") and not name[1:].strip("PDNXFABQUW") and name not in _CALLS:
            return _file_part(function[1:], self._named(words[0], depth))
        call = _CALLS.get(name)
        return None if call is None else call(self, words, depth)

    def _of_environment(self, body: str, depth: int) -> str:
        name, colon, default = body.partition(":")
        value = self._environment.get(name.strip())
        if value is not None:
            return value.replace("$", _DOLLAR)
        return self._expand(default, depth + 1) if colon else "UNDEFINED"

    def _named(self, word: str, depth: int) -> str:
        """Value of the macro of this name, or else the word itself."""
        value = self.raw(word) if _NAME.fullmatch(word) else None
        return word if value is None else self._expand(value, depth + 1)


def value_of(text: str) -> Value | None:
    """Value of a ClassAd expression; None if it is none."""
    try:
        return evaluate(parse(text.strip().replace(_DOLLAR, "$")))
    except ParseError:
        return None


def whole(value: float, what: str) -> int:
    """A number without its fraction.  Raises SubmitError for what is not finite."""
    if not isfinite(value):
        raise SubmitError(f"{what} is no number that is finite")
    return int(value)


def _closing(text: str, at: int) -> int | None:
    """Where the bracket that was opened before `at` closes."""
    open_ = 1
    for place in range(at, len(text)):
        open_ += {"(": 1, ")": -1}.get(text[place], 0)
        if not open_:
            return place
    return None


def _number(macros: Macros, words: list[str], depth: int, function: str) -> int | float:
    if not words:
        raise SubmitError(f"${function} lacks an argument")
    found = value_of(macros._named(words[0], depth))
    if isinstance(found, bool):
        return int(found)
    if not isinstance(found, int | float):
        raise SubmitError(f"${function}({','.join(words)}): {words[0]!r} is no number")
    return found


def _whole(macros: Macros, words: list[str], depth: int, function: str) -> int:
    return whole(_number(macros, words, depth, function), f"${function}({','.join(words)})")


def _formatted(value: float | str, words: list[str], usual: str) -> str:
    form = words[1] if len(words) > 1 else usual
    what = "text" if isinstance(value, str) else "number"
    if _WIDE.search(form):
        raise SubmitError(f"{form!r} asks for a {what} that is too wide")
    try:
        return str(form % value)
    except (ValueError, TypeError, OverflowError):
        raise SubmitError(f"{form!r} is no format of a {what}") from None


def _int(macros: Macros, words: list[str], depth: int) -> str:
    return _formatted(_whole(macros, words, depth, "INT"), words, "%d")


def _real(macros: Macros, words: list[str], depth: int) -> str:
    return _formatted(float(_number(macros, words, depth, "REAL")), words, "%.16G")


def _string(macros: Macros, words: list[str], depth: int) -> str:
    text = macros._named(words[0], depth)
    found = value_of(text)
    text = found if isinstance(found, str) else text
    return _formatted(text, words, "%s")


def _eval(macros: Macros, words: list[str], depth: int) -> str:
    text = macros._named(",".join(words), depth)
    found = value_of(text)
    return str(found).lower() if isinstance(found, bool) else str(found)


def _choice(macros: Macros, words: list[str], depth: int) -> str:
    index = _whole(macros, words, depth, "CHOICE")
    items = words[1:]
    if len(items) == 1 and (listed := macros.raw(items[0])) is not None:
        items = re.split(r"[,\s]+", macros._expand(listed, depth + 1).strip())
    if not 0 <= index < len(items):
        raise SubmitError(f"$CHOICE: there is no item {index} among {len(items)}")
    return items[index]


def _random_choice(macros: Macros, words: list[str], depth: int) -> str:
    items = words
    if len(items) == 1 and (listed := macros.raw(items[0])) is not None:
        items = re.split(r"[,\s]+", macros._expand(listed, depth + 1).strip())
    return random.choice(items)  # noqa: S311  # nothing secret


def _random_integer(macros: Macros, words: list[str], depth: int) -> str:
    numbers = [_whole(macros, [word], depth, "RANDOM_INTEGER") for word in words]
    try:
        low, high, step = numbers if len(numbers) > 2 else (*numbers, 1)
        return str(random.randrange(low, high + 1, step))  # noqa: S311
    except ValueError:
        text = f"$RANDOM_INTEGER({','.join(words)})"
        raise SubmitError(f"{text}: write (low,high) or (low,high,step), low up to high") from None


def _substr(macros: Macros, words: list[str], depth: int) -> str:
    text = macros._named(words[0], depth)
    start = _whole(macros, words[1:], depth, "SUBSTR")
    start = max(0, len(text) + start) if start < 0 else start
    if len(words) < 3:
        return text[start:]
    length = _whole(macros, words[2:], depth, "SUBSTR")
    return text[start : length if length < 0 else start + length]


def _basename(macros: Macros, words: list[str], depth: int) -> str:
    name = os.path.basename(macros._named(words[0], depth))
    if len(words) > 1 and words[1] and name.endswith(words[1]):
        return name[: -len(words[1])]
    return name


def _dirname(macros: Macros, words: list[str], depth: int) -> str:
    folder = os.path.dirname(macros._named(words[0], depth))
    return f"{folder}/" if folder else ""


_CALLS: dict[str, Callable[[Macros, list[str], int], str]] = {
    "INT": _int,
    "REAL": _real,
    "STRING": _string,
    "EVAL": _eval,
    "CHOICE": _choice,
    "RANDOM_CHOICE": _random_choice,
    "RANDOM_INTEGER": _random_integer,
    "SUBSTR": _substr,
    "BASENAME": _basename,
    "DIRNAME": _dirname,
}


def _file_part(letters: str, text: str) -> str:
    """Parts of a file's name: p folder, d its last part, n name, x extension; q, a quote it."""
    chosen = letters.casefold()
    path = text.strip().strip("\"'")
    if "f" in chosen:
        path = os.path.abspath(path)
    folder, base = os.path.split(path)
    stem, extension = os.path.splitext(base)
    made = ""
    if "d" in chosen and folder:
        made += f"{os.path.basename(folder)}/"
    elif "p" in chosen and folder:
        made += f"{folder}/"
    if "d" in chosen and "b" in chosen and "n" not in chosen and "x" not in chosen:
        made = made.rstrip("/")
    if "n" in chosen:
        made += stem
    if "x" in chosen:
        made += extension.removeprefix(".") if "b" in chosen and "n" not in chosen else extension
    if not set(chosen) & set("pdnx"):
        made = path
    if "w" in chosen:
        made = made.replace("/", "\\")
    if "q" in chosen:
        return f"'{made}'" if "a" in chosen else f'"{made}"'
    return made
