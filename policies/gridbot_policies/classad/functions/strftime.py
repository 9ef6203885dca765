"""C's strftime in the C locale and UTC: the same text on every machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class Calendar:
    """A time in parts. A day may be 0, or 31 in any month: it is counted from the month's begin.

    Raises ValueError if a part is not possible at all.
    """

    year: int
    month: int
    day: int
    hour: int = 0
    minute: int = 0
    second: int = 0

    def __post_init__(self) -> None:
        clock = self.hour in range(24) and self.minute in range(60) and self.second in range(61)
        if not clock or self.day not in range(32) or not 2 <= self.year <= 9998:
            raise ValueError(f"no such time: {self}")
        date(self.year, self.month, 1)

    @property
    def date(self) -> date:
        """The day that it really is."""
        return date(self.year, self.month, 1) + timedelta(days=self.day - 1)

    @property
    def yday(self) -> int:
        """The day of its year, from 0."""
        return self.date.toordinal() - date(self.year, 1, 1).toordinal()

    @property
    def wday(self) -> int:
        """The day of the week, Sunday being 0."""
        return self.date.isoweekday() % 7

    @property
    def timestamp(self) -> int:
        """The seconds since 1970."""
        days = self.date.toordinal() - _EPOCH
        return ((days * 24 + self.hour) * 60 + self.minute) * 60 + self.second


@dataclass(frozen=True, slots=True)
class _Number:
    of: Callable[[Calendar], int]
    width: int = 2
    pad: str = "0"


def _hour12(when: Calendar) -> int:
    return (when.hour - 1) % 12 + 1


_NUMBERS: Mapping[str, _Number] = {
    "C": _Number(lambda when: when.year // 100, 1),
    "d": _Number(lambda when: when.day),
    "e": _Number(lambda when: when.day, pad=" "),
    "g": _Number(lambda when: when.date.isocalendar().year % 100),
    "G": _Number(lambda when: when.date.isocalendar().year, 1),
    "H": _Number(lambda when: when.hour),
    "I": _Number(_hour12),
    "j": _Number(lambda when: when.yday + 1, 3),
    "k": _Number(lambda when: when.hour, pad=" "),
    "l": _Number(_hour12, pad=" "),
    "m": _Number(lambda when: when.month),
    "M": _Number(lambda when: when.minute),
    "s": _Number(lambda when: when.timestamp, 1),
    "S": _Number(lambda when: when.second),
    "u": _Number(lambda when: when.date.isoweekday(), 1),
    "U": _Number(lambda when: (when.yday + 7 - when.wday) // 7),
    "V": _Number(lambda when: when.date.isocalendar().week),
    "w": _Number(lambda when: when.wday, 1),
    "W": _Number(lambda when: (when.yday + 7 - (when.wday - 1) % 7) // 7),
    "y": _Number(lambda when: when.year % 100),
    "Y": _Number(lambda when: when.year, 1),
}
_TEXTS: Mapping[str, Callable[[Calendar], str]] = {
    "a": lambda when: _DAYS[when.wday][:3],
    "A": lambda when: _DAYS[when.wday],
    "b": lambda when: _MONTHS[when.month - 1][:3],
    "B": lambda when: _MONTHS[when.month - 1],
    "h": lambda when: _MONTHS[when.month - 1][:3],
    "n": lambda _: "\n",
    "p": lambda when: "PM" if when.hour >= 12 else "AM",
    "P": lambda when: "pm" if when.hour >= 12 else "am",
    "t": lambda _: "\t",
    "z": lambda _: "+0000",
    "Z": lambda _: "UTC",
    "%": lambda _: "%",
}
_OTHERS: Mapping[str, str] = {
    "c": "%a %b %e %H:%M:%S %Y",
    "D": "%m/%d/%y",
    "F": "%Y-%m-%d",
    "r": "%I:%M:%S %p",
    "R": "%H:%M",
    "T": "%H:%M:%S",
    "x": "%m/%d/%y",
    "X": "%H:%M:%S",
}
# The modifiers E and O ask for another calendar or other digits, of which C has none.
_CONVERSION = re.compile(r"[^%]+|%([-_0^#]{0,4})([0-9]{0,3})[EO]?(.)|%", re.DOTALL)


def formatted(when: Calendar, pattern: str) -> Iterator[str]:
    """Yield the text piece by piece; what is no conversion is shown as it is."""
    for piece in _CONVERSION.finditer(pattern):
        yield _converted(when, *piece.groups()) or piece[0]


def _converted(when: Calendar, flags: str | None, width: str | None, letter: str | None) -> str:
    """Return what a conversion gives; nothing if it is none."""
    if flags is None or width is None or letter is None:
        return ""
    if letter in _NUMBERS:
        return _padded_number(_NUMBERS[letter], when, flags, int(width or 0))
    if letter in _TEXTS:
        text = _TEXTS[letter](when)
        if "#" in flags:
            text = text.lower() if letter in "pPZ" else text.upper()
    elif letter in _OTHERS:
        text = "".join(formatted(when, _OTHERS[letter]))
    else:
        return ""
    if "^" in flags and letter != "P":
        text = text.upper()
    return text.rjust(int(width or 0), "0" if "0" in flags else " ")


def _padded_number(number: _Number, when: Calendar, flags: str, width: int) -> str:
    value = str(number.of(when))
    pads = re.sub("[^-_0]", "", flags)  # the last one counts
    pad = {"-": "", "_": " ", "0": "0", "": number.pad}[pads[-1:]]
    if pad == "":
        return value.rjust(width)
    return (
        value.zfill(max(width, number.width))
        if pad == "0"
        else value.rjust(max(width, number.width))
    )
