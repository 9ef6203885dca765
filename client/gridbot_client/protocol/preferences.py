"""When and how much a machine works: names, units, and which contradict each other.  Pure.

Preferences are texts by name, as people write them; `OwnerPreferences` is what they mean.  They
come from the machine's owner, and from the server for all machines of an account.  Each of them can
only restrict what a client lends without it.

The names and meanings follow BOINC's computing preferences
(https://github.com/BOINC/boinc/wiki/Preferences).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gridbot_client.protocol import fields

VENUES = ("default", "home", "work", "school")
MAX_SHARE = 1e9  # of resource shares, which only compare
MAX_PREFERENCES, MAX_NAME_BYTES, MAX_TEXT_BYTES = 50, 40, 200
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MINUTES_A_DAY = 24 * 60
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([kmgt])(?:i?b)?")
_ANY = "any"  # overrides what an account prefers


class PreferenceError(ValueError):
    """A preference that cannot hold; the message names it, and its value."""


@dataclass(frozen=True, slots=True)
class AccountPreferences:
    """What an account prefers on one of its machines, as the server says; 0: never anything."""

    version: int
    texts: Mapping[str, str]


def account_preferences(raw: object) -> AccountPreferences:
    """Validate the form of what a server says; what it means is for `OwnerPreferences`."""
    item = fields.mapping(raw, "preferences")
    texts = fields.mapping(item.get("texts"), "preferences.texts")
    if len(texts) > MAX_PREFERENCES:
        raise fields.ProtocolError(f"preferences: {len(texts)}, at most {MAX_PREFERENCES}")
    return AccountPreferences(
        fields.integer(item, "version", 0, fields.MAX_BIGINT),
        {
            fields.text(name, "preferences", MAX_NAME_BYTES): fields.text(
                value, f"preferences.{name}", MAX_TEXT_BYTES
            )
            for name, value in texts.items()
        },
    )


def account_preferences_json(item: AccountPreferences) -> dict[str, Any]:
    """JSON form of what an account prefers."""
    return {"version": item.version, "texts": dict(item.texts)}


@dataclass(frozen=True, slots=True)
class Hours:
    """A part of each day, in minutes since midnight; it may go past midnight."""

    begin: int
    end: int

    def holds(self, minute: int) -> bool:
        """Whether a minute of the day is in it; its end is not."""
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end

    def meets(self, other: Hours) -> bool:
        """Whether some minute of the day is in both."""
        return self.holds(other.begin) or other.holds(self.begin)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerPreferences:
    """What the owner prefers; None, or the default, where nothing is said."""

    hours: Hours | None = None
    days: frozenset[int] | None = None  # 0 is Monday
    on_battery: bool = True
    idle_minutes: float = 0.0  # without keyboard and mouse; 0: also while it is in use
    max_other_load: float | None = None  # per cent of all CPUs, used by other programs
    cpus: int | None = None
    cpu_share: float = 100.0  # per cent of the CPUs that the client has
    memory_in_use: float = 100.0  # per cent of the memory that the client has
    memory_when_idle: float = 100.0
    disk: int | None = None  # bytes, for inputs and shared folders that are kept
    disk_share: float = 100.0  # per cent of the disk, for the same
    disk_free: int = 0  # bytes that stay free
    download_rate: int | None = None  # bytes per second
    upload_rate: int | None = None
    daily_transfer: int | None = None  # bytes, both directions together
    network_hours: Hours | None = None
    give_back_minutes: float | None = None  # of suspension, then work goes back; None: never
    in_use_minutes: float = 3.0  # after which a machine without input is idle, for the two above

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> OwnerPreferences:
        """Preferences from texts by name.  Raises PreferenceError, also if two contradict."""
        found = {}
        for name, text in texts.items():
            if name not in READERS:
                known = ", ".join(READERS)
                raise PreferenceError(f"{name!r} is no preference; there are {known}")
            if len(text) > MAX_TEXT_BYTES:
                raise PreferenceError(f"{name}: longer than {MAX_TEXT_BYTES} characters")
            try:
                found[name.replace("-", "_")] = READERS[name](text.strip().lower())
            except ValueError as error:
                raise PreferenceError(f"{name} = {text!r}: {error}") from None
        _check(texts)
        return cls(**found)  # type: ignore[arg-type]  # each reader gives what its field holds


def settings(texts: Iterable[str]) -> dict[str, str]:
    """Values by name of texts NAME=VALUE, each right by itself.  Raises PreferenceError."""
    found = dict[str, str]()
    for text in texts:
        name, sign, value = map(str.strip, text.partition("="))
        if not sign:
            raise PreferenceError(f"{text!r}: give NAME=VALUE")
        if found.setdefault(name, value) != value:
            raise PreferenceError(f"{name} = {value} contradicts {name} = {found[name]}")
    OwnerPreferences.parse(found)
    return found


def _check(texts: Mapping[str, str]) -> None:
    """Refuse two preferences that cannot hold together."""
    in_use, idle = texts.get("memory-in-use"), texts.get("memory-when-idle", "100")
    if in_use is not None and _percent(in_use) > _percent(idle):
        raise PreferenceError(
            f"memory-in-use = {in_use} contradicts memory-when-idle = {idle}: a machine in use"
            " would lend more than an idle one"
        )
    if in_use is not None and _minutes(texts.get("idle-minutes", "0")) > 0:
        raise PreferenceError(
            f"memory-in-use = {in_use} contradicts idle-minutes = {texts['idle-minutes']}: nothing"
            " runs while the machine is in use"
        )
    if "cpus" in texts and "cpu-share" in texts:
        raise PreferenceError(
            f"cpus = {texts['cpus']} contradicts cpu-share = {texts['cpu-share']}: give one of them"
        )
    _check_hours(texts)
    _check_disk(texts)


def _check_hours(texts: Mapping[str, str]) -> None:
    work, network = (_hours(texts.get(name, _ANY).lower()) for name in ("hours", "network-hours"))
    if work and network and not work.meets(network):
        raise PreferenceError(
            f"hours = {texts['hours']} contradicts network-hours = {texts['network-hours']}:"
            " work is asked for only while both allow it, which is never"
        )


def _check_disk(texts: Mapping[str, str]) -> None:
    if "disk" in texts and "disk-share" in texts:
        raise PreferenceError(
            f"disk = {texts['disk']} contradicts disk-share = {texts['disk-share']}:"
            " give one of them"
        )


def _hours(text: str) -> Hours | None:
    if text == _ANY:
        return None
    begin, dash, end = text.partition("-")
    found = Hours(_clock(begin), _clock(end) % _MINUTES_A_DAY) if dash else None
    if found is None or found.begin == found.end:
        raise ValueError("hours are like 22:00-07:00")
    return found


def _clock(text: str) -> int:
    hour, _, minute = text.strip().partition(":")
    if not hour.isdecimal() or not (minute or "0").isdecimal():
        raise ValueError("hours are like 22:00-07:00")
    found = 60 * int(hour) + int(minute or "0")
    if int(minute or "0") > 59 or found > _MINUTES_A_DAY:
        raise ValueError("a day has 24 hours of 60 minutes")
    return found


def _days(text: str) -> frozenset[int] | None:
    if text == _ANY:
        return None
    found = set[int]()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        for name in (first, last or first):
            if name not in DAYS:
                raise ValueError(f"{name!r} is no day; days are like mon-fri,sun")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        found.update((begin + step) % 7 for step in range((end - begin) % 7 + 1))
    return frozenset(found)


def _yes(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError("give yes or no")
    return text == "yes"


def _number(text: str) -> float:
    found = float(text)
    if not (math.isfinite(found) and found >= 0):
        raise ValueError("give a number from 0 on")
    return found


def _minutes(text: str) -> float:
    return _number(text.removesuffix("m"))


def _percent(text: str) -> float:
    found = _number(text.removesuffix("%"))
    if not 0 < found <= 100:
        raise ValueError("give per cent, above 0 and up to 100")
    return found


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("give a whole number from 1 on")
    return int(text)


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    found = round(float(match[1]) * _UNITS[match[2]]) if match else 0
    if not found:
        raise ValueError("give a size such as 500MB or 20GB")
    return found


def _rate(text: str) -> int:
    return _size(text.removesuffix("/s"))


READERS: dict[str, Callable[[str], object]] = {
    "hours": _hours,
    "days": _days,
    "on-battery": _yes,
    "idle-minutes": _minutes,
    "max-other-load": _percent,
    "cpus": _count,
    "cpu-share": _percent,
    "memory-in-use": _percent,
    "memory-when-idle": _percent,
    "disk": _size,
    "disk-share": _percent,
    "disk-free": _size,
    "download-rate": _rate,
    "upload-rate": _rate,
    "daily-transfer": _size,
    "network-hours": _hours,
    "give-back-minutes": _minutes,
}
