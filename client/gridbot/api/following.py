"""Follows a BOT, or a group of them: its state until it stops, and its results as they come."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol, TypeVar

from gridbot import reliable
from gridbot.api.connection import AWAY_PAUSES, patiently
from gridbot.api.errors import ServerAway

# Seconds between two looks at a BOT: short at first, because many BOTs are short.  A server may
# hold an answer back until there is something to tell, or its seconds are over.
_FIRST_LOOK, _LAST_LOOK = 0.05, 3.0
_LEAST_ANSWER = 10.0  # seconds that the last look may take, after its time
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
        for_ = math.inf if left is None else max(left, _LEAST_ANSWER)
        state = patiently(partial(show, wait), told, for_=for_)
        yield state
        if has_stopped(state):
            return
        if left == 0:
            raise TimeoutError(f"{what(state)} finished after {timeout:g} s; it keeps running")
        # What the server has waited for us counts.
        rest = look - (time.monotonic() - began if wait else 0.0)
        look = min(look * 1.5, _LAST_LOOK)
        wait = math.ceil(look) if left is None or left > look + 1 else 0
        reliable.pause(max(0.0, rest if left is None else min(rest, left)))


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
    gets the first of each row of errors while the server is away; without `follow` it is raised,
    if nothing came before it.  That is not `reliable.trying`, whose limits would hold for those who
    take the results, too.
    """
    look, ended, failures = _FIRST_LOOK, not follow, 0
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
            failures = 1 if after != last else failures + 1
            if failures == 1:
                told(error)
            reliable.pause(AWAY_PAUSES.after(error, failures, random.random()))  # noqa: S311
            continue
        failures = 0
        if after != last:
            look = _FIRST_LOOK
        elif ended:
            return
        else:
            # Results may have come since: then there is one more round, which does not wait.
            ended = has_ended()
            reliable.pause(0.0 if ended else max(0.0, look - (time.monotonic() - began)))
            look = min(look * 1.5, _LAST_LOOK)
