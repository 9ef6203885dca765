"""How much a client may transfer: rates, an amount for each day, and times when nothing may be.

Inputs and outputs move in pieces, each of which is asked for here.  A piece is small where a rate
is limited, and the next one waits until the rate makes up for it.  Requests for work and reports,
which are some kB, do not count.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Direction = Literal["down", "up"]

_PIECE_SECONDS, _LEAST_PIECE = 2.0, 16 << 10


class TransferWaits(Exception):
    """Nothing may be transferred now; the message says why."""


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """What the machine's owner allows; None: no limit."""

    rates: dict[Direction, int] = field(default_factory=dict)  # bytes per second
    daily_bytes: int | None = None
    obstacle: str = ""  # why nothing may be transferred now


@dataclass(slots=True)
class Rate:
    """Time from which the next bytes may move, so that all of them keep to a rate.  Pure."""

    free_at: float = 0.0

    def wait(self, now: float, moved: int, bytes_per_second: float) -> float:
        """Take in that this many bytes move as soon as they may; return the seconds until then."""
        begin = max(self.free_at, now)
        self.free_at = begin + moved / bytes_per_second
        return begin - now


def piece(limits: TransferLimits, direction: Direction, wanted: int, moved_today: int) -> int:
    """How many of the bytes that are wanted may move at once; 0: none today.  Pure."""
    most = wanted
    if rate := limits.rates.get(direction):
        most = min(most, max(_LEAST_PIECE, int(rate * _PIECE_SECONDS)))
    if limits.daily_bytes is not None:
        most = min(most, max(0, limits.daily_bytes - moved_today))
    return most


class TransferAllowance:
    """One client's; used by all its threads.  `kept` is a file with the amount of the day."""

    def __init__(
        self, kept: Path | None = None, clock: Callable[[], float] = time.monotonic,
        today: Callable[[], str] = lambda: time.strftime("%Y-%m-%d"),
        wait: Callable[[float], object] | None = None,
    ) -> None:  # fmt: skip
        self.limits = TransferLimits()
        self._kept, self._clock, self._today = kept, clock, today
        self._is_closed = threading.Event()
        self._wait = wait or self._is_closed.wait
        self._lock = threading.Lock()
        self._rates: dict[Direction, Rate] = {"down": Rate(), "up": Rate()}

    def take(self, direction: Direction, wanted: int) -> int:
        """Wait until something may move; return how many bytes, at most `wanted`.

        Raises TransferWaits.
        """
        with self._lock:
            limits, day = self.limits, self._today()
            if limits.obstacle:
                raise TransferWaits(limits.obstacle)
            before = self._moved(day)
            granted = piece(limits, direction, wanted, before)
            if wanted and not granted:
                raise TransferWaits("daily-transfer: the amount of this day is used up")
            rate, seconds = limits.rates.get(direction), 0.0
            if rate:
                seconds = self._rates[direction].wait(self._clock(), granted, rate)
            if limits.daily_bytes is not None:
                self._note(day, before + granted)
        if seconds > 0:
            self._wait(seconds)
        if self._is_closed.is_set():
            raise TransferWaits("the client ends")
        return granted

    def obstacle(self) -> str:
        """Why nothing may be transferred now, or ""."""
        with self._lock:
            limits = self.limits
            if limits.daily_bytes is not None and self._moved(self._today()) >= limits.daily_bytes:
                return limits.obstacle or "daily-transfer: the amount of this day is used up"
            return limits.obstacle

    def close(self) -> None:
        """End all waiting: the client ends."""
        self._is_closed.set()

    def _moved(self, day: str) -> int:
        """Bytes that were counted on a day."""
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            kept = json.loads(self._kept.read_text()) if self._kept else {}
            if kept["day"] == day:
                return int(kept["bytes"])
        return 0

    def _note(self, day: str, moved: int) -> None:
        """Keep the amount of a day; what a power failure takes of it is given again."""
        if self._kept is not None:
            fresh = self._kept.with_name(self._kept.name + ".new")
            fresh.write_text(json.dumps({"day": day, "bytes": moved}))
            fresh.rename(self._kept)


UNLIMITED = TransferAllowance()
