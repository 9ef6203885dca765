"""Idle clients that were refused all that the scheduling buffer holds."""

from __future__ import annotations

from collections.abc import Collection

from gridbot_simulator.buffer import MemoryBuffer
from gridbot_simulator.world.client import SimulatedClient

REFUSED_SECONDS = 60.0  # after which a client asks for the same once more
_ASKS_AGAIN_PART = 0.05  # of the time without any change, if that is more


class IdleClients:
    """Who was refused what; they wait, and plan no request, while the buffer holds no more.

    What is taken out of the buffer is no reason to ask again: only what was put in is, or a new
    phase of the BOT.  A policy may look at the time: what is there is asked for again now and then.
    """

    def __init__(self, buffer: MemoryBuffer) -> None:
        self._buffer = buffer
        self._refused: dict[int, tuple[object, float]] = {}  # by client: the offer, and when
        self._waiting: dict[int, SimulatedClient] = {}
        self._offer: object = None  # of which those that wait know
        self._since = 0.0  # when the first of them began to wait

    def refuse(self, client: SimulatedClient, now: float) -> None:
        """Note that a client got nothing."""
        self._refused[client.id] = self._offered(), now

    def forget(self, client: SimulatedClient) -> None:
        """Note that a client is idle no more, or went."""
        self._refused.pop(client.id, None)
        self._waiting.pop(client.id, None)

    def asks_in_vain(self, client: SimulatedClient, now: float) -> bool:
        """Whether a client would be told what it was told a moment ago; if so, it waits."""
        if client.has_reports or client.runs or client.id not in self._refused:
            return False
        offer, at = self._refused[client.id]
        is_vain = self._is_empty() or (offer == self._offered() and now < at + REFUSED_SECONDS)
        if is_vain:
            if not self._waiting:
                self._since, self._offer = now, self._offered()
            self._waiting[client.id] = client
        return is_vain

    def asks_at(self, changed_at: float) -> float | None:
        """When those that wait ask again though nothing was put in; None: never.

        Nothing has changed since `changed_at`.
        """
        if not self._waiting or self._is_empty():
            return None
        return self._since + max(REFUSED_SECONDS, _ASKS_AGAIN_PART * (self._since - changed_at))

    def woken(self, now: float, changed_at: float) -> Collection[SimulatedClient]:
        """Return those that wait no more, as there is something else, or time has passed."""
        if not self._waiting or self._is_empty():
            return ()
        due = self.asks_at(changed_at)
        if self._offer == self._offered() and due is not None and now < due:
            return ()
        woken, self._waiting = self._waiting.values(), {}
        return woken

    def _is_empty(self) -> bool:
        return not any(item.fresh or item.copies for item in self._buffer.segments())

    def _offered(self) -> object:
        """What tells one content of the buffer from another with more in it."""
        return self._buffer.new_so_far, [item.state.tail for item in self._buffer.segments()]
