"""Parses and formats quantities for people: 90s, 10m, 2h; 1.5 MB."""

from __future__ import annotations

import re
from datetime import timedelta

from gridbot.api.errors import BadInput

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")


def seconds(text: str | float) -> float:
    """Seconds in a duration such as `90`, `90s`, `10m`, `1.5h` or `2d`.  Raises BadInput."""
    match = _DURATION.fullmatch(str(text).strip().lower())
    if not match or not float(match[1]):
        raise BadInput(f"{text!r} is not a duration; write 90s, 10m, 2h or 1d")
    return float(match[1]) * _SECONDS[match[2]]


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
