"""Tells the server how a run is, for its page in the console: rarely, and without holding it up."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from gridbot.api.connection import Connection
from gridbot.api.documents import WorkflowSummary
from gridbot.api.errors import GridbotError, ServerAway
from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.reports import workflow
from gridbot.dag.run.lots import NodeLots
from gridbot_client.protocol.workflows import STILL_SECONDS, TELL_SECONDS

_END_SECONDS = 3.0  # that the end of a run waits for the server, at most

Say = Callable[[str], None]


@dataclass(frozen=True)
class ToldRun:
    """A run that the server is told of; `began_at` is in seconds since 1970."""

    kind: str  # dag or flow
    name: str
    began_at: float
    engine: DagEngine
    lots: NodeLots


class WorkflowTeller:
    """Tells of one run, from a thread of its own.

    What cannot be told now is told later.  A server that does not take it, such as an older one, is
    told no more.  `say` gets the address of the run's page, once there is one.
    """

    def __init__(self, run: ToldRun, connection: Connection, say: Say) -> None:
        self._run, self._connection, self._say = run, connection, say
        self._layers = workflow.Layers()
        self._to_send = queue.SimpleQueue[workflow.Document]()
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._is_refused = self._has_page = self._was_away = False  # the thread changes these
        self._has_changed = True
        self._next = 0.0  # when it may be told again, and
        self._still = 0.0  # when it is, although nothing has changed
        self._thread: threading.Thread | None = None

    def look(self, has_changed: bool) -> None:
        """Tell how the run is, if it is time to."""
        self._has_changed |= has_changed
        now = time.monotonic()
        is_due = now >= (self._next if self._has_changed or self._was_away else self._still)
        if is_due and self._is_idle.is_set() and self._can_tell():
            self._next, self._still = now + TELL_SECONDS, now + STILL_SECONDS
            self._has_changed = self._was_away = False
            self._tell("running")

    def end(self, state: str) -> None:
        """Tell how the run has ended; the server has three seconds for that."""
        until = time.monotonic() + _END_SECONDS
        # A run that was never looked at has not been replayed to where it was.
        has_begun = self._thread is not None or state != "interrupted"
        if has_begun and self._can_tell() and self._is_idle.wait(_END_SECONDS):
            self._tell(state)
            self._is_idle.wait(max(0.0, until - time.monotonic()))

    def _can_tell(self) -> bool:
        """Whether there is a group at the server: the first BOT of the run makes it."""
        return not self._is_refused and bool(self._run.lots.known())

    def _tell(self, state: str) -> None:
        run = self._run
        times = workflow.RunTimes.of(run.engine, run.began_at)
        self._is_idle.clear()
        self._to_send.put(
            workflow.document(run.kind, run.name, state, run.engine, times, self._layers, run.lots)
        )
        if self._thread is None:
            self._thread = threading.Thread(target=self._send_all, daemon=True)
            self._thread.start()

    def _send_all(self) -> None:
        path = f"/groups/{self._run.lots.group}/workflow"
        while True:
            told = self._to_send.get()
            try:
                answer: WorkflowSummary = self._connection.send("PUT", path, told)
                self._tell_page(int(answer["id"]))
            except (ServerAway, OSError):
                self._was_away = True  # it is told again
            except (GridbotError, LookupError, TypeError, ValueError):  # or what is no answer
                self._is_refused = True
            finally:
                self._is_idle.set()

    def _tell_page(self, number: int) -> None:
        if not self._has_page:
            self._has_page = True
            self._say(f"{self._run.name}: {self._connection.url}/workflows/{number}")
