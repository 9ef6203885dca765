"""A worker for each grid, so that a grid that hangs keeps no other waiting.

A worker has one task at a time.  A task that does not end soon goes on in its thread; its grid is
left out meanwhile, and its result is handed on by a later `collect`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from threading import Thread
from typing import Any, TypeVar

from gridbot_overlay.submitters import GridError

R = TypeVar("R")

PATIENCE_SECONDS = 10.0
_LESS_PATIENCE_SECONDS = 1.0  # with a grid that did not answer in time when it was last asked
log = logging.getLogger(__name__)


class GridBusy(GridError):
    """The grid still owes the answer to something earlier."""


@dataclass(frozen=True, slots=True)
class _Task:
    """What a worker is doing."""

    answer: Future[Any]
    then: Callable[[str, Any], None]
    begun: float


class GridWorkers:
    """The workers of all grids.  Only the work itself happens in threads of its own."""

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._patience = patience_seconds
        self._tasks: dict[str, _Task] = {}
        self._slow: set[str] = set()

    def each(
        self, works: Mapping[str, Callable[[], R]], then: Callable[[str, R | Exception], None]
    ) -> None:
        """Do something with each grid, at once.

        `then` gets the grid and what came of it, or the error: now, or within a later `collect`.
        Where a worker is busy it gets GridBusy.
        """
        for name, work in works.items():
            if name in self._tasks:
                then(name, self.busy(name))
            else:
                self._tasks[name] = _Task(_started(work, name), then, time.monotonic())
        self._wait(works)
        self.collect()

    def collect(self) -> None:
        """Hand on what was answered since."""
        for name, task in list(self._tasks.items()):
            if task.answer.done():
                del self._tasks[name]
                self._slow.discard(name)
                task.then(name, task.answer.result())

    def is_busy(self, name: str) -> bool:
        """Tell whether a grid still owes an answer."""
        return name in self._tasks

    def busy(self, name: str) -> GridBusy:
        """Say for how long it has owed it."""
        seconds = time.monotonic() - self._tasks[name].begun
        return GridBusy(f"it has not answered for {seconds:.0f} s")

    def _wait(self, names: Collection[str]) -> None:
        answers = {name: self._tasks[name].answer for name in names}
        wait([answers[name] for name in names if name not in self._slow], self._patience)
        wait(answers.values(), min(self._patience, _LESS_PATIENCE_SECONDS))
        self._slow -= answers.keys()
        self._slow |= {name for name, answer in answers.items() if not answer.done()}


def _started(work: Callable[[], R], name: str) -> Future[R | Exception]:
    """Do it in a thread that does not keep the constructor from ending."""
    answer = Future[R | Exception]()

    def do() -> None:
        try:
            answer.set_result(work())
        except GridError as error:
            answer.set_result(error)
        except Exception as error:
            log.exception("unexpected, with grid %s", name)
            answer.set_result(error)

    Thread(target=do, name=f"grid {name}", daemon=True).start()
    return answer
