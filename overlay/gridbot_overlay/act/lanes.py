"""A lane for each grid that is spoken with, so that one that hangs keeps no other waiting.

In a lane is one piece of work at a time.  What does not end soon goes on by itself; its grid is
left out meanwhile, and what came of it is heard later.
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


class Busy(GridError):
    """The grid still owes the answer to something earlier."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What is under way in a lane."""

    answer: Future[Any]
    then: Callable[[str, Any], None]
    begun: float


class Lanes:
    """The lanes of all grids.  Only the work itself happens in threads of its own."""

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._patience = patience_seconds
        self._works: dict[str, _Work] = {}
        self._slow: set[str] = set()

    def each(
        self, works: Mapping[str, Callable[[], R]], then: Callable[[str, R | Exception], None]
    ) -> None:
        """Do something with each grid, at once.

        `then` gets the grid and what came of it, or the error: now, or within a later `collect`.
        Where a lane is taken it gets Busy.
        """
        for name, work in works.items():
            if name in self._works:
                then(name, self.busy(name))
            else:
                self._works[name] = _Work(_started(work, name), then, time.monotonic())
        self._wait(works)
        self.collect()

    def collect(self) -> None:
        """Hand on what was answered since."""
        for name, work in list(self._works.items()):
            if work.answer.done():
                del self._works[name]
                self._slow.discard(name)
                work.then(name, work.answer.result())

    def is_busy(self, name: str) -> bool:
        """Tell whether a grid still owes an answer."""
        return name in self._works

    def busy(self, name: str) -> Busy:
        """Say for how long it has owed it."""
        seconds = time.monotonic() - self._works[name].begun
        return Busy(f"it has not answered for {seconds:.0f} s")

    def _wait(self, names: Collection[str]) -> None:
        answers = {name: self._works[name].answer for name in names}
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
