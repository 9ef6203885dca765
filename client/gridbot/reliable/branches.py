"""One of several ways, or all of them at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TypeVar

from gridbot.reliable.scope import Cancelled, Scope, check, entered, present

T = TypeVar("T")
R = TypeVar("R")


def any_of(
    items: Iterable[T],
    action: Callable[[T], R],
    on: type[Exception] | tuple[type[Exception], ...] = Exception,
    start: Callable[[int], int] = random.randrange,
) -> tuple[T, R]:
    """Do it with one item after the other until it succeeds; return the item and the result.

    The first is drawn by lot, so that many who choose among the same do not all begin with one;
    each comes once.  Raises the last error if none succeeds, ValueError if there are none.
    """
    every = list(items)
    if not every:
        raise ValueError("any_of: there is nothing to choose from")
    first = start(len(every))
    for place, item in enumerate(turned := every[first:] + every[:first]):
        check()
        try:
            return item, action(item)
        except on:
            if place == len(turned) - 1:
                raise
    raise AssertionError("the last one returns or raises")


def all_of(items: Iterable[T], action: Callable[[T], R], at_once: int | None = None) -> list[R]:
    """Do it with all items, each in a thread, and return the results in the order of the items.

    At the first failure the others are cancelled: programs that `run` started are ended, pauses
    and `check` raise Cancelled.  Raises that failure once all have ended.  At most `at_once` are
    done at the same time; without it, all are.
    """
    every = list(items)
    if not every:
        return []
    with present().cancellation.inner() as inner:
        scope = Scope(present().deadline, inner)
        branches: list[Future[R]] = []
        with ThreadPoolExecutor(at_once or len(every)) as threads:
            try:
                for item in every:
                    branches.append(
                        threads.submit(copy_context().run, _branch, action, item, scope)
                    )
                wait(branches, return_when=FIRST_EXCEPTION)
            finally:  # also if it is we who are interrupted, or who get no further thread
                if len(branches) < len(every) or not all(map(_has_succeeded, branches)):
                    inner.set()
        return _results(branches)


def _branch(action: Callable[[T], R], item: T, scope: Scope) -> R:
    with entered(scope):
        scope.check()
        return action(item)


def _has_succeeded(branch: Future[R]) -> bool:
    return branch.done() and branch.exception() is None


def _results(branches: list[Future[R]]) -> list[R]:
    """Return the results.  Raises the first failure that is not the consequence of another."""
    errors = [error for branch in branches if (error := branch.exception()) is not None]
    own = [error for error in errors if not isinstance(error, Cancelled)]
    if errors:
        raise (own or errors)[0]
    return [branch.result() for branch in branches]
