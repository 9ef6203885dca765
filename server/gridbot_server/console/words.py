"""How numbers, times and sizes are written on pages.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

_THIN = "\N{NARROW NO-BREAK SPACE}"
_NOTHING = "\N{EN DASH}"
_STEPS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"))


def number(value: float | None) -> str:
    """Write a count with its thousands apart."""
    if value is None:
        return _NOTHING
    return f"{value:,.0f}".replace(",", _THIN)


def decimal(value: float | None, places: int = 2) -> str:
    """Write a measured number with about three digits."""
    if value is None:
        return _NOTHING
    if value and abs(value) < 10**-places:
        return f"{value:.1g}"
    return f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else places}f}".replace(
        ",", _THIN
    )


def share(part: float, whole: float) -> str:
    """Write a part of a whole in per cent; less than all is never 100 %."""
    if not whole:
        return f"0{_THIN}%"
    per_cent = 100 * part / whole
    if 0 < per_cent < 1 or 99 < per_cent < 100:
        return f"{min(99.9, max(0.1, per_cent)):.1f}{_THIN}%"
    return f"{per_cent:.0f}{_THIN}%"


def duration(seconds: float | None) -> str:
    """Write a time span in its two largest units at most."""
    if seconds is None:
        return _NOTHING
    if seconds < 10:
        return f"{seconds:.1f}{_THIN}s"
    if seconds < 120:
        return f"{seconds:.0f}{_THIN}s"
    for size, unit in _STEPS:
        if seconds >= 2 * size:
            whole = seconds / size
            return f"{whole:.1f}{_THIN}{unit}" if whole < 10 else f"{whole:.0f}{_THIN}{unit}"
    return f"{seconds:.0f}{_THIN}s"


def size(count: float | None) -> str:
    """Write a number of bytes."""
    if count is None:
        return _NOTHING
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f}{_THIN}{unit}" if unit == "B" else f"{count:.1f}{_THIN}{unit}"
        count /= 1000
    raise AssertionError("the last unit ends the loop")


def when(time: datetime | None) -> str:
    """Write a time of UTC, to the minute."""
    return _NOTHING if time is None else time.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def moment(seconds: float) -> str:
    """Write a time in seconds since 1970, in UTC, to the minute."""
    return when(datetime.fromtimestamp(seconds, UTC))


def iso(time: datetime) -> str:
    """Write a time for programs, which show it as those who read are used to."""
    return time.astimezone(UTC).isoformat(timespec="seconds")


def counted(count: int, noun: str, plural: str = "") -> str:
    """Write a number of things."""
    return f"{number(count)} {noun if count == 1 else plural or noun + 's'}"


def brief(value: object, most: int = 80) -> str:
    """Write a value, cut where it is long."""
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def arguments(args: Mapping[str, Any]) -> str:
    """Write a job's arguments in a line."""
    return brief(", ".join(f"{name} = {value}" for name, value in args.items()), 120) or _NOTHING


FILTERS: Mapping[str, Callable[..., str]] = MappingProxyType(
    {
        "number": number, "decimal": decimal, "share": share, "duration": duration, "size": size,
        "when": when, "moment": moment, "iso": iso, "counted": counted,
        "brief": brief, "arguments": arguments,
    }
)  # fmt: skip
