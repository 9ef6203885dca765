"""Lines about the client's work, for terminal and log; frequent events are summed up."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable

from gridbot_client.terminal import printable

_NUMBER = re.compile(r"[0-9]+")
QUIET_SECONDS = 2.0  # least time between two summaries


class ActivityLog:
    """Collects events from all threads and prints them through `write`."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._print = write
        self._clock = clock
        self._lock = threading.Lock()
        self._printed_at = -QUIET_SECONDS
        self._refused: set[int] = set()
        self._no_work = ""
        self._got: Counter[int] = Counter()
        self._ended: dict[int, Counter[str]] = {}

    def say(self, line: str) -> None:
        """Print a line now."""
        with self._lock:
            self._print_events()
            self._write(line)

    def refused(self, bot: int, why: str) -> None:
        """Print why replicas of a BOT do not run here, once per BOT."""
        if bot not in self._refused:
            self._refused.add(bot)
            self.say(f"refused to run BOT {bot}: {why}")

    def no_work(self, why: str) -> None:
        """Print why the server has no work, when the reason changes; numbers in it are none."""
        reason = _NUMBER.sub("", why)
        if reason and reason != self._no_work:
            self.say(f"no work now: {why}")
        self._no_work = reason

    def got(self, bot: int, count: int) -> None:
        """Count received replicas of a BOT."""
        with self._lock:
            self._got[bot] += count
        self.flush()

    def ended(self, bot: int, reason: str) -> None:
        """Count an ended replica; `reason` is a reason code, empty on success."""
        with self._lock:
            self._ended.setdefault(bot, Counter())[reason] += 1
        self.flush()

    def flush(self) -> None:
        """Print counted events, unless a summary was printed within QUIET_SECONDS."""
        with self._lock:
            if self._clock() - self._printed_at >= QUIET_SECONDS:
                self._print_events()

    def close(self) -> None:
        """Print events that were not printed yet."""
        with self._lock:
            self._print_events()

    def _write(self, line: str) -> None:
        self._print(printable(line.rstrip()))  # servers have a say in it

    def _print_events(self) -> None:
        for bot, count in self._got.items():
            self._write(f"received {count_of(count)} of BOT {bot}")
        for bot, reasons in self._ended.items():
            self._write(f"BOT {bot}: {_summary(reasons)}")
        if self._got or self._ended:
            self._printed_at = self._clock()
        self._got.clear()
        self._ended.clear()


def count_of(count: int) -> str:
    """Count of replicas in words, such as `1 replica` or `2 replicas`."""
    return "1 replica" if count == 1 else f"{count} replicas"


def _summary(reasons: Counter[str]) -> str:
    good = [f"{count_of(reasons[''])} finished"] if reasons[""] else []
    bad = [f"{count} failed ({reason})" for reason, count in reasons.items() if reason]
    return ", ".join(good + bad)
