"""Tells a person what the client does: a line at a time, summed up when much happens."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

QUIET_SECONDS = 2.0  # at most one summary in this time


class Progress:
    """Collects events from all threads and prints them through `write`."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._write = write
        self._clock = clock
        self._lock = threading.Lock()
        self._printed_at = -QUIET_SECONDS
        self._refused: set[int] = set()
        self._got: Counter[int] = Counter()
        self._ended: dict[int, Counter[str]] = {}

    def say(self, line: str) -> None:
        """Print a line now."""
        with self._lock:
            self._print_events()
            self._write(line)

    def refused(self, bot: int, why: str) -> None:
        """Tell why replicas of a BOT do not run here, once per BOT."""
        if bot not in self._refused:
            self._refused.add(bot)
            self.say(f"refused to run BOT {bot}: {why}")

    def got(self, bot: int, count: int) -> None:
        """Note that replicas of a BOT came."""
        with self._lock:
            self._got[bot] += count
        self.flush()

    def ended(self, bot: int, reason: str) -> None:
        """Note that a replica ended; `reason` is empty on success."""
        with self._lock:
            self._ended.setdefault(bot, Counter())[reason] += 1
        self.flush()

    def flush(self) -> None:
        """Print what happened, unless something was printed just now."""
        with self._lock:
            if self._clock() - self._printed_at >= QUIET_SECONDS:
                self._print_events()

    def close(self) -> None:
        """Print what is left."""
        with self._lock:
            self._print_events()

    def _print_events(self) -> None:
        for bot, count in self._got.items():
            self._write(f"got {_replicas(count)} of BOT {bot}")
        for bot, reasons in self._ended.items():
            self._write(f"BOT {bot}: {_summary(reasons)}")
        if self._got or self._ended:
            self._printed_at = self._clock()
        self._got.clear()
        self._ended.clear()


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"


def _summary(reasons: Counter[str]) -> str:
    good = [f"{_replicas(reasons[''])} finished"] if reasons[""] else []
    bad = [f"{count} failed ({reason})" for reason, count in reasons.items() if reason]
    return ", ".join(good + bad)
