"""Times and sizes as people write them, 90s, 10m, 2h, 512MB, 2GB, and options that take them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TypeVar

import click

Number = TypeVar("Number", int, float)

NO_TIME = "{!r} is not a duration; write 90s, 10m, 2h or 1d"
NO_SIZE = "{!r} is not a size; write 500MB or 2GB"

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)", re.ASCII)
# As batch systems do: MB are 1024 * 1024 bytes, whatever they are called.
_MEGABYTES = {"": 1.0, "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(?:i?b)?)?", re.ASCII)
_MOST_DIGITS = 30


def seconds(text: str | float) -> float:
    """Seconds in a duration such as `90`, `90s`, `10m`, `1.5h` or `2d`.  Raises ValueError."""
    match = _DURATION.fullmatch(_plain(text))
    if not match:
        raise ValueError(NO_TIME.format(text))
    return float(match[1]) * _SECONDS[match[2]]


def megabytes(text: str | float) -> int:
    """MB, of 1024 * 1024 bytes, in a size such as `500`, `500MB`, `2GB` or `1.5G`; rounded up.

    Raises ValueError.
    """
    match = _SIZE.fullmatch(_plain(text))
    if not match:
        raise ValueError(NO_SIZE.format(text))
    return math.ceil(float(match[1]) * _MEGABYTES[match[2] or ""])


def _plain(text: str | float) -> str:
    return str(text).strip().lower()[: _MOST_DIGITS + 1]


class Quantity(click.ParamType[Number]):
    """An option's value with a unit, at least `least`; what is none is wrong usage."""

    def __init__(self, name: str, read: Callable[[str], Number], least: float = 0.0) -> None:
        self.name = name
        self._read: Callable[[str], Number] = read
        self._least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Number:
        """Read it."""
        try:
            found = self._read(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if found < self._least:
            self.fail(f"{value} is less than {self._least:g}", param, ctx)
        return found


TIME = Quantity("time", seconds)
SIZE = Quantity("size", megabytes, least=1)
