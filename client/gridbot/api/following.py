"""Follows a BOT, or a group of them: its state until it stops, and its results as they come."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol, TypeVar

from gridbot.api.connection import patiently
from gridbot.api.errors import ServerAway

# Seconds between two looks at a BOT: short at first, because many BOTs are short.  A server may
# hold an answer back until there is something to tell, or its seconds are over.
_FIRST_LOOK, _LAST_LOOK = 0.05, 3.0
_RESULTS_WAIT = 20  # seconds for which the server may hold back an empty answer


class Numbered(Protocol):
    """A result, whose `n` is its place in the stream."""

    @property
    def n(self) -> int:
        """The cursor behind it."""


N = TypeVar("N", bound=Numbered)
S = TypeVar("S")


def follow_state(
    show: Callable[[int], S],
    has_stopped: Callable[[S], bool],
    what: Callable[[S], str],
    *,
    timeout: float | None,
    told: Callable[[ServerAway], None],
) -> Iterator[S]:
    """Yield the state now and then, the last time when it has stopped.

    `show` gives it, and may be kept waiting for so many seconds.  Raises TimeoutError after
    `timeout` seconds, with `what` there is by then.
    """
    ends_at = None if timeout is None else time.monotonic() + timeout
    look, wait = _FIRST_LOOK, 0
    while True:
        began = time.monotonic()
        left = None if ends_at is None else max(0.0, ends_at - began)
        state = patiently(partial(show, wait), _after(left), told)
        yield state
        if has_stopped(state):
            return
        if left == 0:
            raise TimeoutError(f"{what(state)} finished after {timeout:g} s; it keeps running")
        # What the server has waited for us counts.
        rest = look - (time.monotonic() - began if wait else 0.0)
        look = min(look * 1.5, _LAST_LOOK)
        wait = math.ceil(look) if left is None or left > look + 1 else 0
        time.sleep(max(0.0, rest if left is None else min(rest, left)))


def follow_results(
    read: Callable[[int, int], Iterator[N]],
    has_ended: Callable[[], bool],
    *,
    after: int,
    follow: bool,
    told: Callable[[ServerAway], None],
) -> Iterator[N]:
    """Yield results behind `after`; with `follow`, until the source has ended.

    `read` asks for those behind a cursor, and may be kept waiting for so many seconds.  `told`
    gets errors while the server is away; without `follow` the first one is raised.
    """
    look, ended = _FIRST_LOOK, not follow
    while True:
        last, began = after, time.monotonic()
        try:
            for result in read(after, 0 if ended else _RESULTS_WAIT):
                after = result.n
                yield result
        except ServerAway as error:
            # If some results arrived, the next request resumes after them.
            if not follow and after == last:
                raise
            told(error)
            time.sleep(look)
            continue
        if after != last:
            look = _FIRST_LOOK
        elif ended:
            return
        else:
            # Results may have come since: then there is one more round, which does not wait.
            ended = has_ended()
            time.sleep(0.0 if ended else max(0.0, look - (time.monotonic() - began)))
            look = min(look * 1.5, _LAST_LOOK)


def _after(seconds: float | None) -> Callable[[float], bool]:
    return lambda waited: seconds is not None and waited >= seconds
