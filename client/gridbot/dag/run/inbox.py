"""What happens to a run from outside: ends that threads tell, times that are due, the halt file."""

from __future__ import annotations

import math
import queue
import time
from heapq import heapify, heappop, heappush
from pathlib import Path

from gridbot.dag.engine.events import Due, Halted, Provisioned, RunEvent

_HALT_SECONDS = 0.5  # between two looks for the halt file


class Inbox:
    """Events of a run.  `put` and `ask` may be called by any thread."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[RunEvent | str] = queue.SimpleQueue()
        self._times: list[tuple[float, str, str]] = []
        self._halt_at = 0.0
        self.is_paused = False

    def put(self, event: RunEvent) -> None:
        """Tell of an event."""
        self._events.put(event)

    def pause(self) -> None:
        """Ask that the run can be gone on with later."""
        self._events.put("pause")

    def remind(self, at: float, node: str, kind: str) -> None:
        """Tell that a node is due at this time."""
        heappush(self._times, (at, node, kind))

    def forget(self, node: str, kind: str) -> None:
        """It was told already that this node is due."""
        self._times = [item for item in self._times if item[1:] != (node, kind)]
        heapify(self._times)

    def wait(
        self, halt_file: Path, is_halted: bool, ready_file: Path | None = None
    ) -> list[RunEvent]:
        """What has happened; waits for it, and for the times that are due.

        `ready_file` is that by which a PROVISIONER, which is waited for, says that it is ready.
        """
        now = time.time()
        until = min(self._halt_at, *(item[0] for item in self._times[:1]), math.inf)
        happened = self._told(max(0.0, until - now))
        if ready_file is not None and ready_file.exists():  # before its job's end, which may follow
            happened.insert(0, Provisioned())
        now = time.time()
        while self._times and self._times[0][0] <= now:
            _, node, kind = heappop(self._times)
            happened.append(Due(node, kind))
        if now >= self._halt_at:
            self._halt_at = now + _HALT_SECONDS
            is_there = halt_file.exists()
            if is_there != is_halted:
                happened.append(Halted(is_there))
        return happened

    def _told(self, seconds: float) -> list[RunEvent]:
        found = list[RunEvent]()
        try:
            item = self._events.get(timeout=seconds)
            while True:
                if isinstance(item, RunEvent):
                    found.append(item)
                else:
                    self.is_paused = True
                item = self._events.get_nowait()
        except queue.Empty:
            return found
