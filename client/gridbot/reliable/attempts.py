"""Tries something again after failures, within limits of time and number."""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import ParamSpec, TypeVar

from gridbot.reliable.limits import RetryLimits
from gridbot.reliable.scope import Cancelled, Scope, entered, present
from gridbot_client.backoff import BackOff
from gridbot_client.quantities import seconds

P = ParamSpec("P")
T = TypeVar("T")
Failures = type[Exception] | tuple[type[Exception], ...]


@dataclass(eq=False)
class RetryAttempt:
    """One attempt: what happens inside `with attempt:` may fail, and is tried again then."""

    number: int  # from 1 on
    scope: Scope
    on: Failures
    error: Exception | None = None
    _stack: ExitStack = field(default_factory=ExitStack, repr=False)

    def __enter__(self) -> RetryAttempt:
        self._stack.enter_context(entered(self.scope))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._stack.close()
        if not isinstance(error, self.on):
            return False
        self.error = error
        return True


@dataclass(frozen=True)
class Trying:
    """Attempts to iterate over, or a decorator of a function that is to be tried so.

    Each use has limits of its own, from its beginning on, within those around it.
    """

    limits: RetryLimits
    for_: float | None
    each: float | None
    sense: Callable[[], bool] | None
    on: Failures
    told: Callable[[Exception, float], None]

    def __iter__(self) -> Iterator[RetryAttempt]:
        began, whole = time.monotonic(), present().within(self.for_)
        present().check()
        for number in count(1):
            self._listen(whole)
            attempt = RetryAttempt(number, whole.within(self.each), self.on)
            attempted = time.monotonic()
            yield attempt
            if (error := attempt.error) is None:
                return
            now = time.monotonic()
            if not self._rest(whole, error, number, now - attempted):
                attempts = f"{number} attempts" if number > 1 else "one attempt"
                error.add_note(f"given up after {attempts}, {now - began:.1f} s")
                raise error

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return the function with attempts around it."""

        @functools.wraps(function)
        def tried(*args: P.args, **options: P.kwargs) -> T:
            for attempt in self:
                with attempt:
                    return function(*args, **options)
            raise AssertionError("attempts end by a result or an error")

        return tried

    def _listen(self, whole: Scope) -> None:
        """Wait until what is to be used is free; that costs time, and no attempt."""
        busy = 0
        while self.sense is not None:
            with entered(whole):
                if self.sense():
                    return
            busy += 1
            whole.pause(self.limits.back_off.seconds(busy, random.random()))  # noqa: S311

    def _rest(self, whole: Scope, error: Exception, failures: int, took: float) -> bool:
        """Wait for the next attempt; false at once if there is none, or no time for it."""
        if whole.cancellation.is_set():
            raise Cancelled
        pause = self.limits.pause(error, failures, took, random.random())  # noqa: S311
        if pause is None or pause >= whole.remaining():
            return False
        self.told(error, pause)
        if whole.cancellation.wait(pause):
            raise Cancelled
        return True


def _quiet(error: Exception, pause: float) -> None:
    """Tell nobody."""


def trying(
    for_: float | str | None = None,
    times: int | None = None,
    every: float | str | None = None,
    each: float | str | None = None,
    sense: Callable[[], bool] | None = None,
    on: Failures = Exception,
    back_off: BackOff | None = None,
    told: Callable[[Exception, float], None] = _quiet,
) -> Trying:
    """Try until it succeeds or a limit leaves no further attempt; then raise the last error.

    Durations are seconds or texts such as "10m".  Without `for_` and `times` it is tried once, as
    in the fault tolerant shell, and for ever if `for_` is infinite.  `every` is the interval at
    which attempts begin, instead of pauses that grow (`back_off`); `each` limits one attempt.
    `sense` says whether what is wanted is free: while it is not, no attempt is made.  Only errors
    of the kinds `on` are failures, others pass; one with a `retry_after` says how many seconds a
    server wants to be left alone.  Where `times` is the only limit, it is the last one if that is
    longer than any pause of `back_off`.  `told` gets each failure that is not the last, and the
    pause that follows in seconds.
    Raises ValueError for durations that are none.
    """
    if for_ is None and times is None:
        times = 1
    if times is not None and times < 1:
        raise ValueError(f"times: {times} is not 1 or more")
    pauses = back_off or BackOff()
    return Trying(
        RetryLimits(times, _seconds(every), pauses, pauses.most if for_ is None else math.inf),
        _seconds(for_),
        _seconds(each),
        sense,
        on,
        told,
    )


def _seconds(duration: float | str | None) -> float | None:
    return duration if duration is None or duration == math.inf else seconds(duration)
