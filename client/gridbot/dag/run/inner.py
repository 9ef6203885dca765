"""Sub-DAGs: runs of their own in threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from gridbot.api.errors import GridbotError
from gridbot.dag.engine.events import JobEnded, JobRemoved, JobStarted, RunEvent
from gridbot.dag.engine.table import NodeState

PAUSED = 3  # exit code of a run that is to be gone on with
_END_SECONDS = 60.0  # for a sub-DAG to end


class InnerRun(Protocol):
    """What is asked of the run of a sub-DAG."""

    def execute(self) -> int:
        """Run to the end."""

    def remove(self) -> None:
        """Ask it to end."""

    def pause(self) -> None:
        """Ask that it can be gone on with later."""


Told = Callable[[RunEvent], None]
Say = Callable[[str], None]
Make = Callable[[NodeState, bool, Say], InnerRun]  # the second: whether it begins anew


class InnerDags:
    """The sub-DAGs of a run; their ends are told."""

    def __init__(self, make: Make, told: Told, say: Say) -> None:
        self._make, self._told, self._say = make, told, say
        self._runs: dict[str, InnerRun] = {}
        self._threads: list[threading.Thread] = []
        self._removed: set[str] = set()
        self._is_paused = False

    def start(self, state: NodeState, anew: bool) -> None:
        """Run a node's sub-DAG; `anew` unless it may have begun before a crash, or is a retry."""
        self._told(JobStarted(state.name, 0))
        thread = threading.Thread(target=self._execute, args=(state, anew), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _execute(self, state: NodeState, anew: bool) -> None:
        inner = self._make(state, anew, lambda text: self._say(f"{state.name}: {text}"))
        self._runs[state.name] = inner
        try:
            code = inner.execute()
        except GridbotError as error:
            self._say(f"{state.name}: {error}")
            code = 1
        if state.name in self._removed:
            self._told(JobRemoved(state.name, 0))
        elif code != PAUSED or not self._is_paused:
            self._told(JobEnded(state.name, 0, code))

    def remove(self, node: str) -> bool:
        """Ask a node's sub-DAG to end; False if it has none that runs."""
        inner = self._runs.get(node)
        if inner is not None:
            self._removed.add(node)
            inner.remove()
        return inner is not None

    def pause(self) -> None:
        """Let them be gone on with later."""
        self._is_paused = True
        for inner in self._runs.values():
            inner.pause()
        self.join()

    def join(self) -> None:
        """Wait until they have ended, and written their reports."""
        for thread in self._threads:
            thread.join(_END_SECONDS)
