"""Holds a task to its processors by pauses, where no cgroup does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

# What a task may use beyond its share, so that none is paused for what cannot be measured exactly.
_SLACK = 1.05
# CPU seconds beyond its share for each processor, from which on it is paused: a pause has a price.
_LEAST_DEBT_SECONDS = 0.1


class Pausable(Protocol):
    """What can be kept from running."""

    def pause(self) -> None:
        """Let nothing of it run until `resume`; idempotent."""

    def resume(self) -> None:
        """Let it run again."""


@dataclass(slots=True)
class CpuShare:
    """Pauses one task until it has used no more than its `cpus` since it began to use more.

    What it left unused counts for nothing later, as in a cgroup.
    """

    _task: Pausable
    cpus: float
    _debt: float = field(default=0.0, init=False)  # CPU seconds that it used beyond its share
    _seen: tuple[float, float] | None = field(default=None, init=False)  # when, CPU seconds by then
    _until: float | None = field(default=None, init=False)  # end of a pause

    def pause_seconds(self, now: float) -> float:
        """Return how long a pause still lasts.  `now`: of a monotonic clock, here and below."""
        return max(0.0, self._until - now) if self._until is not None else 0.0

    def follow(self, now: float) -> bool:
        """Keep the task still, or end its pause; whether it is still.

        A paused one is told so at each look: a process may have been starting.
        """
        if self._until is None:
            return False
        if now < self._until:
            self._task.pause()
            return True
        self.end()
        return False

    def end(self) -> None:
        """Let the task run, also to its end."""
        if self._until is not None:
            self._until = None
            self._task.resume()

    def look(self, now: float, threads: int, used: Callable[[], float]) -> None:
        """Begin a pause if the task has used too much; `used` returns its CPU seconds so far.

        With no more threads than processors it cannot use more, and nothing is measured.
        """
        if threads <= self.cpus:
            self._seen, self._debt = None, 0.0
            return
        seconds = used()
        if self._seen is not None:
            then, before = self._seen
            # Processes that ended may be missing in the sum.
            spent = max(0.0, seconds - before)
            self._debt = max(0.0, self._debt + spent - _SLACK * self.cpus * (now - then))
        self._seen = (now, seconds)
        if self._debt > _LEAST_DEBT_SECONDS * self.cpus:
            self._until = now + self._debt / (_SLACK * self.cpus)
            self._task.pause()
