"""Requests for work that the server may keep until it has some, beside the client's others.

A client with idle CPUs that runs something waits for work and has reports to make meanwhile.  So
each kept request has a thread and a connection of its own.  The client gives it up when it asks
anew: the server then answers it without work, and sends again what it may have granted already.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from gridbot_client.net.transport import Transport, TransportError
from gridbot_client.protocol.messages import WorkRequest

# Given up, but not yet answered: a server with several web processes may take its time.
_MOST_UNANSWERED = 4


@dataclass(slots=True)
class _Kept:
    request: WorkRequest
    transport: Transport
    outcome: bytes | TransportError | None = None


class KeptRequests:
    """At most one is waited for.  The condition `changed` guards them and signals answers."""

    def __init__(self, connect: Callable[[], Transport], changed: threading.Condition) -> None:
        self._connect, self._changed = connect, changed
        self._current: _Kept | None = None
        self._unanswered = 0  # the current one included
        self._idle: list[Transport] = []  # connections for the next ones

    @property
    def has_room(self) -> bool:
        """Whether one more may be made."""
        return self._unanswered < _MOST_UNANSWERED

    @property
    def is_answered(self) -> bool:
        """Whether there is something to take."""
        return self._current is not None and self._current.outcome is not None

    def begin(self, request: WorkRequest, body: bytes) -> None:
        """Make a request, and give up the one before."""
        with self._changed:
            transport = self._idle.pop() if self._idle else self._connect()
            self._current = kept = _Kept(request, transport)
            self._unanswered += 1
        # No answer is worth a wait at the client's end.
        threading.Thread(target=self._run, args=(kept, body), name="kept", daemon=True).start()

    def give_up(self) -> None:
        """Wait no more."""
        self._current = None

    def take(self) -> tuple[WorkRequest, bytes] | None:
        """Take the answered request with its reply, if there is one.  Raises TransportError."""
        with self._changed:
            kept = self._current
            if kept is None or kept.outcome is None:
                return None
            self._current = None
        if isinstance(kept.outcome, TransportError):
            raise kept.outcome
        return kept.request, kept.outcome

    def _run(self, kept: _Kept, body: bytes) -> None:
        outcome: bytes | TransportError
        try:
            outcome = kept.transport.rpc(body)
        except TransportError as error:
            outcome = error
        with self._changed:
            kept.outcome = outcome
            self._unanswered -= 1
            self._idle.append(kept.transport)
            self._changed.notify()
