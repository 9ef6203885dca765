"""Functions of time. The clock is the evaluation's `now`; the calendar is UTC's."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

from gridbot_policies.classad.functions.call import (
    CallContext,
    Function,
    eager,
    int32,
    real_of,
    real_of_text,
    whole,
)
from gridbot_policies.classad.functions.strftime import Calendar, formatted
from gridbot_policies.classad.nodes import Attribute
from gridbot_policies.classad.values import (
    ERROR,
    UNDEFINED,
    AbsTime,
    Missing,
    Record,
    RelTime,
    Value,
    bytes_of,
    record,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@eager(0)
def _time(call: CallContext) -> Value:
    return UNDEFINED if call.now is None else int(call.now)


@eager(0)
def _current_time(call: CallContext) -> Value:
    return UNDEFINED if call.now is None else AbsTime(int(call.now), 0)


@eager(0)
def _day_time(call: CallContext) -> Value:
    return UNDEFINED if call.now is None else RelTime(float(int(call.now) % 86400))


@eager(0)
def _time_zone_offset(_call: CallContext) -> Value:
    return RelTime(0.0)


@eager(0, 2)
def _abs_time(call: CallContext, value: Value | None = None, offset: Value | None = None) -> Value:
    if value is None:
        return UNDEFINED if call.now is None else AbsTime(int(call.now), 0)
    zone = 0 if offset is None else _seconds(offset)
    if isinstance(zone, Missing):
        return ERROR
    if value is UNDEFINED or isinstance(value, str | AbsTime):
        return value  # only the parser reads texts
    seconds = _seconds(value)
    if isinstance(seconds, Missing):
        return ERROR
    if zone == -1 and type(value) is int:
        call.fail()
    return AbsTime(seconds, zone)


def _seconds(value: Value) -> int | Missing:
    match value:
        case bool():
            return ERROR
        case int() | float() | RelTime():
            return int32(value.seconds if isinstance(value, RelTime) else value)
        case _:
            return ERROR


def moment_of(text: str) -> Value:
    """Return the time that `2020-01-02T03:04:05+05:30` names; an error if none.

    Only the year is needed, and what is not a digit counts for nothing between its parts.
    Without a zone it is UTC. Without a day it is the last of the month before, as in HTCondor.
    """
    text = bytes_of(text).decode("latin-1")
    zone = re.search(r"(?<=.)(?:([-+])([0-9]{2}):?([0-9]{2})\Z|[zZ](?=\s*\Z))", text, re.DOTALL)
    offset = 0
    if zone is not None:
        text = text[: zone.start()] + text[zone.end() :]
        if zone[1]:
            offset = (int(zone[2]) * 60 + int(zone[3])) * 60 * (-1 if zone[1] == "-" else 1)
    parts = _numbers_in(text)
    if parts is None:
        return ERROR
    seconds = _since_1970(*parts)
    return ERROR if seconds == -1 else AbsTime(seconds - offset, offset)


def _numbers_in(text: str) -> list[int] | None:
    """Return year, month, and so on, as many as there are; None if there are too many digits."""
    found: list[int] = []
    position = 0
    digits = re.compile(r"[0-9]+")
    for width in (4, 2, 2, 2, 2, 2):
        match = digits.search(text, position)
        if match is None or match.start() + width > len(text):
            break
        position = match.start() + width
        found.append(int(match[0][:width]))
    return found if found and not digits.search(text, position) else None


def _since_1970(
    year: int, month: int = 1, day: int = 0, hour: int = 0, minute: int = 0, second: int = 0
) -> int:
    """Return the seconds, carrying what is too large or too small over to the next part."""
    years = year + (month - 1) // 12
    # The calendar repeats every 400 years, and Python's begins with year 1.
    begin = date(years % 400 + 400, (month - 1) % 12 + 1, 1).toordinal()
    days = begin + (years // 400 - 1) * 146097 + day - 1 - _EPOCH.toordinal()
    return ((days * 24 + hour) * 60 + minute) * 60 + second


@eager(1)
def _rel_time(_call: CallContext, value: Value) -> Value:
    match value:
        case bool():
            return ERROR
        case int():
            return RelTime(float(int32(value)))
        case float():
            return RelTime(value)
        case AbsTime(seconds):
            return RelTime(float(seconds))
        case Missing() | RelTime():
            return value
        case str():
            return RelTime(0.0)  # only the parser reads texts
        case _:
            return ERROR


# Backwards, as HTCondor reads it: the last number is the seconds.
_SPAN = re.compile(
    r"\s*+(?:(?=[sS0-9])[sS]?\s*+([0-9]*+(?:\.[0-9]*+)?))?\s*+(?:[mM:]\s*+([0-9]*+))?\s*+"
    r"(?:[hH:]\s*+([0-9]*+))?\s*+(?:[dD+]\s*+([0-9]*+))?\s*+(-?)\s*+",
    re.ASCII,
)


def span_of(text: str) -> Value:
    """Return the span that `[-][[[days+]hours:]minutes:]seconds` or `1d2h3m4s` names."""
    match = _SPAN.fullmatch(text[::-1])
    if match is None:
        return ERROR
    seconds = real_of_text((match[1] or "")[::-1]) or 0.0
    minutes, hours, days = (_int32_of(match[group] or "") for group in (2, 3, 4))
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return RelTime(-total if match[5] else total)


def _int32_of(reversed_digits: str) -> int:
    """Return the number, or 0 if there is none or it does not fit C's int."""
    digits = reversed_digits[::-1].lstrip("0")
    number = int(digits) if 0 < len(digits) < 11 else 0
    return number if number < 2**31 else 0


def _part(of_moment: Callable[[datetime], int] | None, of_span: int | None = None) -> Function:
    """Make a function that gives a part of a time; `of_span` is the unit in seconds."""

    def apply(_call: CallContext, value: Value) -> Value:
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
def _split_time(_call: CallContext, value: Value) -> Value:
    match value:
        case RelTime(seconds):
            return _split_span(seconds)
        case AbsTime(seconds, offset):
            return _split_moment(seconds, offset)
        case bool():
            return ERROR
        case int():
            return _split_moment(value, 0)
        case float():
            return _split_moment(int32(value), 0)
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
def _format_time(call: CallContext, time: Value | None = None, pattern: Value = "%c") -> Value:
    if time is None:
        time = UNDEFINED if call.now is None else int(call.now)
    try:
        when = _calendar(call, time)
    except (OverflowError, ValueError):  # a time that no calendar has
        return ERROR
    if when is None or not isinstance(pattern, str):
        return ERROR
    call.spend(len(pattern) // 2)
    return call.text(formatted(when, pattern))


def _calendar(call: CallContext, value: Value) -> Calendar | None:
    """Return the time that a number, a time or an ad like splitTime's stands for."""
    match value:
        case AbsTime(seconds, offset):
            return _calendar_of(seconds + offset)
        case bool():
            return None
        case int():
            return _calendar_of(value)
        case float():
            return _calendar_of(int32(value))
        case Record():
            names = ("Year", "Month", "Day", "Hours", "Minutes", "Seconds")
            given = (call.evaluate_in(Attribute(name), value) for name in names)
            defaults = (1900, 1, 0, 0, 0, 0)
            parts = zip(given, defaults, strict=True)
            return Calendar(*(int32(p) if type(p) is int else other for p, other in parts))
        case _:
            return None


def _calendar_of(seconds: int) -> Calendar:
    when = _EPOCH + timedelta(seconds=seconds)
    return Calendar(when.year, when.month, when.day, when.hour, when.minute, when.second)


@eager(1)
def _interval(_call: CallContext, value: Value) -> Value:
    number = real_of(value)
    if isinstance(number, Missing):
        return ERROR
    seconds = int32(value if isinstance(value, int) else whole(number))
    sign, left = "-" if seconds < 0 else "", abs(seconds)
    days, hours, minutes, rest = left // 86400, left // 3600 % 24, left // 60 % 60, left % 60
    if days:
        return f"{sign}{days}+{hours:02}:{minutes:02}:{rest:02}"
    if hours:
        return f"{sign}{hours}:{minutes:02}:{rest:02}"
    return f"{sign}{minutes}:{rest:02}" if minutes else f"{sign}{rest}"


TABLE = {
    "time": _time,
    "currenttime": _current_time,
    "daytime": _day_time,
    "timezoneoffset": _time_zone_offset,
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
