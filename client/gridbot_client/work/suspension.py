"""Suspended work: programs stay in memory and do not run."""

from __future__ import annotations

from dataclasses import dataclass, field

from gridbot_client.work.confinement import Task


@dataclass(slots=True)
class Suspension:
    """Whether all tasks are to stand still.  Set by one thread, read by the others."""

    is_on: bool = False


@dataclass(slots=True)
class SuspendedTime:
    """Holds one task while `suspension` is on, and counts for how long."""

    _task: Task
    _suspension: Suspension
    _since: float | None = field(default=None, init=False)
    _before: float = field(default=0.0, init=False)

    def follow(self, now: float) -> bool:
        """Suspend or continue the task; whether it is suspended.  `now`: of a monotonic clock.

        A suspended one is told so at each look: a process may have been starting.
        """
        if not self._suspension.is_on:
            self.end(now)
            return False
        self._task.pause()
        if self._since is None:
            self._since = now
        return True

    def end(self, now: float) -> None:
        """Let the task run, also to its end."""
        if self._since is not None:
            self._before, self._since = self.seconds(now), None
            self._task.resume()

    def seconds(self, now: float) -> float:
        """How long it was suspended until now."""
        return self._before + (now - self._since if self._since is not None else 0.0)
