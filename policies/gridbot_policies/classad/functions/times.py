"""Functions of time. The clock is the evaluation's `now`; the calendar is UTC's."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

from gridbot_policies.classad.functions.call import Call, Function, eager, real_of, whole
from gridbot_policies.classad.nodes import Attribute
from gridbot_policies.classad.values import (
    ERROR,
    UNDEFINED,
    AbsTime,
    Missing,
    Record,
    RelTime,
    Value,
    record,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@eager(0, 1)
def _time(call: Call, _ignored: Value = UNDEFINED) -> Value:
    return UNDEFINED if call.now is None else int(call.now)


@eager(0, 2)
def _abs_time(call: Call, value: Value | None = None, offset: Value = 0) -> Value:
    if value is None:
        return UNDEFINED if call.now is None else AbsTime(int(call.now), 0)
    if UNDEFINED in (value, offset):
        return UNDEFINED
    if isinstance(value, str):
        return moment_of(value)
    zone = _seconds(offset)
    seconds = _seconds(value)
    if isinstance(seconds, Missing) or isinstance(zone, Missing):
        return ERROR
    return AbsTime(whole(seconds), whole(zone))


def _seconds(value: Value) -> float | Missing:
    if isinstance(value, bool) or not isinstance(value, int | float | AbsTime | RelTime):
        return ERROR
    return real_of(value)


_MOMENT = re.compile(
    r"([0-9]{4})\D?([0-9]{2})\D?([0-9]{2})(?:\D?([0-9]{2})\D?([0-9]{2})\D?([0-9]{2}))?"
    r"(?:[zZ]|([-+])([0-9]{2}):?([0-9]{2}))?"
)


def moment_of(text: str) -> Value:
    """Return the time that `2020-01-02T03:04:05+05:30` names; without a zone it is UTC."""
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        return ERROR
    sign, hours, minutes = match[7], int(match[8] or 0), int(match[9] or 0)
    offset = (hours * 3600 + minutes * 60) * (-1 if sign == "-" else 1)
    numbers = [int(match[group] or 0) for group in range(1, 7)]
    try:
        when = datetime(*numbers, tzinfo=timezone(timedelta(seconds=offset)))  # type: ignore[misc,arg-type]  # six integers
    except ValueError:
        return ERROR
    return AbsTime((when - _EPOCH) // timedelta(seconds=1), offset)


_SPAN = re.compile(r"([-+]?)(?:(?:(?:([0-9]+)\+)?([0-9]+):)?([0-9]+):)?([0-9]+(?:\.[0-9]+)?)")


@eager(1)
def _rel_time(_call: Call, value: Value) -> Value:
    match value:
        case Missing():
            return value
        case bool():
            return ERROR
        case int() | float() | AbsTime():
            return RelTime(float(real_of(value)))  # type: ignore[arg-type]  # a number gives one
        case RelTime():
            return value
        case str():
            return span_of(value)
        case _:
            return ERROR


def span_of(text: str) -> Value:
    """Return the span that `[-][[[days+]hours:]minutes:]seconds` names."""
    match = _SPAN.fullmatch(text.strip()[:100])
    if match is None:
        return ERROR
    days, hours, minutes = (int(match[group] or 0) for group in (2, 3, 4))
    seconds = ((days * 24 + hours) * 60 + minutes) * 60 + float(match[5])
    return RelTime(-seconds if match[1] == "-" else seconds)


def _part(of_moment: Callable[[datetime], int] | None, of_span: int | None = None) -> Function:
    """Make a function that gives a part of a time; `of_span` is the unit in seconds."""

    def apply(_call: Call, value: Value) -> Value:
        if isinstance(value, AbsTime) and of_moment is not None:
            try:
                return of_moment(_EPOCH + timedelta(seconds=value.seconds))
            except OverflowError:
                return ERROR
        if isinstance(value, RelTime) and of_span is not None:
            return _part_of_span(value.seconds, of_span)
        return ERROR

    return Function(apply, 1, 1)


def _part_of_span(seconds: float, unit: int) -> int:
    larger = {1: 60, 60: 60, 3600: 24}
    amount = abs(whole(seconds)) // unit
    if unit in larger:
        amount %= larger[unit]
    return -amount if seconds < 0 else amount


@eager(1)
def _split_time(_call: Call, value: Value) -> Value:
    match value:
        case RelTime(seconds):
            return _split_span(seconds)
        case AbsTime(seconds, offset):
            return _split_moment(seconds, offset)
        case int() | float() if not isinstance(value, bool):
            return _split_moment(whole(value), 0)
        case _:
            return UNDEFINED if value is UNDEFINED else ERROR


def _split_moment(seconds: int, offset: int) -> Value:
    try:
        when = _EPOCH + timedelta(seconds=seconds + offset)
    except OverflowError:
        return ERROR
    return record(
        {
            "Type": "AbsoluteTime",
            "Year": when.year,
            "Month": when.month,
            "Day": when.day,
            "Hours": when.hour,
            "Minutes": when.minute,
            "Seconds": when.second,
            "Offset": offset,
        }
    )


def _split_span(seconds: float) -> Value:
    if not abs(seconds) < 2**53:
        return ERROR
    left = int(abs(seconds))
    parts = {
        "Days": left // 86400,
        "Hours": left // 3600 % 24,
        "Minutes": left // 60 % 60,
        "Seconds": left % 60 + abs(seconds) - left,
    }
    if seconds < 0:  # only the largest part that is not zero carries the sign
        largest = next((name for name, part in parts.items() if part), "Seconds")
        parts[largest] = -parts[largest]
    return record({"Type": "RelativeTime", **parts})


@eager(0, 2)
def _format_time(call: Call, time: Value | None = None, pattern: Value = "%c") -> Value:
    if time is None:
        time = UNDEFINED if call.now is None else int(call.now)
    when = _calendar(call, time)
    if when is None or not isinstance(pattern, str):
        return ERROR
    # strftime may make a hundred characters of two, and knows no NUL.
    call.text([pattern] * 50)
    return "\0".join(when.strftime(part) for part in _bytes_only(pattern).split("\0"))


def _bytes_only(text: str) -> str:
    """Return `text` without lone surrogates, which C's strftime cannot take."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _calendar(call: Call, value: Value) -> datetime | None:
    """Return the time that a number, a time or an ad like splitTime's stands for."""
    try:
        match value:
            case AbsTime(seconds, offset):
                return _EPOCH + timedelta(seconds=seconds + offset)
            case int() | float() if not isinstance(value, bool):
                return _EPOCH + timedelta(seconds=whole(value))
            case Record():
                return _calendar_of_ad(call, value)
            case _:
                return None
    except (OverflowError, ValueError):
        return None


def _calendar_of_ad(call: Call, ad: Record) -> datetime:
    names = ("Year", "Month", "Day", "Hours", "Minutes", "Seconds")
    given = [call.evaluate_in(Attribute(name), ad) for name in names]
    defaults = (1900, 1, 1, 0, 0, 0)
    numbers = [
        int(part) if isinstance(part, int | float) else default
        for part, default in zip(given, defaults, strict=True)
    ]
    return datetime(*numbers, tzinfo=UTC)  # type: ignore[misc,arg-type]  # six integers


@eager(1)
def _interval(_call: Call, value: Value) -> Value:
    number = real_of(value)
    if isinstance(number, Missing):
        return ERROR
    seconds = whole(number) if abs(number) < 2**31 else 0
    sign, left = "-" if seconds < 0 else "", abs(seconds)
    days, hours, minutes, rest = left // 86400, left // 3600 % 24, left // 60 % 60, left % 60
    if days:
        return f"{sign}{days}+{hours:02}:{minutes:02}:{rest:02}"
    if hours:
        return f"{sign}{hours}:{minutes:02}:{rest:02}"
    return f"{sign}{minutes}:{rest:02}" if minutes else f"{sign}{rest}"


TABLE = {
    "time": _time,
    "abstime": _abs_time,
    "reltime": _rel_time,
    "getyear": _part(lambda when: when.year),
    "getmonth": _part(lambda when: when.month),
    "getdayofmonth": _part(lambda when: when.day),
    "getdayofweek": _part(lambda when: when.isoweekday() % 7),
    "getdayofyear": _part(lambda when: when.timetuple().tm_yday - 1),
    "getdays": _part(None, 86400),
    "gethours": _part(lambda when: when.hour, 3600),
    "getminutes": _part(lambda when: when.minute, 60),
    "getseconds": _part(lambda when: when.second, 1),
    "splittime": _split_time,
    "formattime": _format_time,
    "interval": _interval,
}
