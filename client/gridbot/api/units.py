"""Parses and formats quantities for people: 90s, 10m, 2h; 2GB; 1.5 MB."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from gridbot.api.errors import BadInput
from gridbot_client import quantities

Number = TypeVar("Number", int, float)

_FAILURES = re.compile(r"[0-9]{1,9}|(100|[0-9]{1,2}(\.[0-9]{1,3})?)%")


def seconds(text: str | float) -> float:
    """Seconds in a duration such as `90`, `90s`, `10m`, `1.5h` or `2d`.

    Raises BadInput, also for 0.
    """
    return _above_zero(quantities.seconds, text, quantities.NO_TIME)


def megabytes(text: str | int) -> int:
    """MB, of 1024 * 1024 bytes, in a size such as `500`, `500MB`, `2GB` or `1.5G`; rounded up.

    Raises BadInput, also for 0.
    """
    return _above_zero(quantities.megabytes, text, quantities.NO_SIZE)


def _above_zero(read: Callable[[str | float], Number], text: str | float, refusal: str) -> Number:
    try:
        found = read(text)
    except ValueError as error:
        raise BadInput(str(error)) from None
    if not found:
        raise BadInput(refusal.format(text))
    return found


def most_failures(value: int | str | None) -> str | None:
    """Failed jobs beyond which a BOT is held, such as `20` or `5%`.  Raises BadInput."""
    if value is None:
        return None
    text = str(value).strip()
    if not _FAILURES.fullmatch(text):
        raise BadInput(
            f"max_failures {text!r}: write a number of jobs or a share, such as 20 or 5%"
        )
    return text


def limit(mb: int) -> str:
    """Size of a limit, exactly and as it may be typed: 512 MB, 2 GB."""
    for scale, unit in ((1024 * 1024, "TB"), (1024, "GB")):
        if mb and mb % scale == 0:
            return f"{mb // scale} {unit}"
    return f"{mb} MB"


def time_limit(seconds: float) -> str:
    """A limit of time, exactly and as it may be typed: 90 s, 2 h, 1 d."""
    for scale, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds and seconds % scale == 0:
            return f"{seconds / scale:g} {unit}"
    return f"{seconds:g} s"


def duration(value: timedelta | None) -> str:
    """Duration in its two largest units; `-` when unknown."""
    if value is None:
        return "-"
    exact = value.total_seconds()
    if exact < 59.5:
        return f"{exact:.3g} s"
    minutes, rest = divmod(round(exact), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def size(count: int) -> str:
    """Number of bytes with a decimal unit, in three digits."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"
