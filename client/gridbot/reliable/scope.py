"""What all that is done inside inherits: how long it may take, and whether it is cancelled.

The present scope is a context variable.  So it holds for what a function calls, and each thread
that `all_of` starts begins with that of its starter.  Scopes change nothing by themselves: who
waits or begins something asks them.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


class OutOfTime(TimeoutError):
    """The time that was given has passed."""


class Cancelled(BaseException):
    """A branch beside this one has failed; whoever catches Exception does not catch this."""


class Cancellation:
    """Whether branches are cancelled; it holds for all that they began, too."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._inner: set[Cancellation] = set()

    def is_set(self) -> bool:
        """Whether it is cancelled."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait a number of seconds, or until it is cancelled; return whether it is."""
        return self._event.wait(min(seconds, threading.TIMEOUT_MAX))

    def set(self) -> None:
        """Cancel.  Idempotent."""
        with self._lock:
            self._event.set()
            inner = list(self._inner)
        for each in inner:
            each.set()

    @contextmanager
    def inner(self) -> Iterator[Cancellation]:
        """Another one, which this one sets, too, as long as it is in use."""
        made = Cancellation()
        with self._lock:
            self._inner.add(made)
            if self._event.is_set():
                made.set()
        try:
            yield made
        finally:
            with self._lock:
                self._inner.discard(made)


@dataclass(frozen=True)
class Scope:
    """Until when, in seconds of `time.monotonic`, and how it is cancelled."""

    deadline: float = math.inf
    cancellation: Cancellation = field(default_factory=Cancellation)

    def within(self, seconds: float | None) -> Scope:
        """The same with no more time than `seconds` from now on; None leaves it as it is."""
        if seconds is None:
            return self
        return Scope(min(self.deadline, time.monotonic() + seconds), self.cancellation)

    def remaining(self) -> float:
        """Seconds that are left, below 0 if it is over."""
        return self.deadline - time.monotonic()

    def check(self) -> None:
        """Raise Cancelled or OutOfTime if it is over."""
        if self.cancellation.is_set():
            raise Cancelled
        if self.remaining() <= 0:
            raise OutOfTime("out of time")

    def pause(self, seconds: float) -> None:
        """Wait.  Raises Cancelled or OutOfTime as soon as it is over."""
        self.cancellation.wait(max(0.0, min(seconds, self.remaining())))
        self.check()


_NONE = Scope()
_present: ContextVar[Scope] = ContextVar("_present", default=_NONE)


def present() -> Scope:
    """The scope in which the caller is."""
    return _present.get()


@contextmanager
def entered(scope: Scope) -> Iterator[None]:
    """Make it the present one inside."""
    token = _present.set(scope)
    try:
        yield
    finally:
        _present.reset(token)


def remaining() -> float:
    """Seconds that the caller has left; infinite without a limit around it."""
    return present().remaining()


def check() -> None:
    """Raise OutOfTime or Cancelled if the caller should stop; for long loops."""
    present().check()


def pause(seconds: float) -> None:
    """Sleep, and raise OutOfTime or Cancelled as soon as the caller should stop."""
    present().pause(seconds)
