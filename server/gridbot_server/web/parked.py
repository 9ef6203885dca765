"""The requests for work that are parked: how many, in which order, for how long.

Pure bookkeeping: sockets and time are the caller's (`parking.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gridbot_server.dispatch.engine import Queued

# After an attempt that brought nothing a request rests, longer each time: a queue full of jobs that
# do not suit a thousand idle hosts must not cost a thousand attempts whenever it changes.
_FIRST_REST, _MOST_REST = 0.1, 2.0


@dataclass(slots=True)
class ParkedRequest:
    """A request that found no work, and its connection."""

    conn: Any
    item: Queued
    until: float  # when it is answered without work
    rest: float = _FIRST_REST  # after the next attempt
    ready_at: float = 0.0  # when the next attempt may be made


class ParkedRequests:
    """The parked requests of a web process, the oldest first; one of each client."""

    def __init__(self) -> None:
        self._parked: OrderedDict[Any, ParkedRequest] = OrderedDict()
        self._of_client: dict[bytes, ParkedRequest] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def add(self, parked: ParkedRequest) -> ParkedRequest | None:
        """Park a request, also one that was tried in vain; return one that it takes the place of.

        A client that asks anew has given up its last request, whose connection may still look
        alive: it changed its address, say.
        """
        last = self._of_client.get(parked.item.token_hash)
        if last:
            self.remove(last.conn)
        self._parked[parked.conn] = parked
        self._of_client[parked.item.token_hash] = parked
        return last

    def remove(self, conn: Any) -> ParkedRequest | None:
        """Take the request of a connection out; None if it is parked no more."""
        parked = self._parked.pop(conn, None)
        if parked:
            del self._of_client[parked.item.token_hash]
        return parked

    def oldest(self) -> ParkedRequest | None:
        """The request that was parked first."""
        return next(iter(self._parked.values()), None)

    def ready(self, now: float, most: int) -> list[ParkedRequest]:
        """Take out requests for which the engine may be asked again, and plan their rest."""
        found = list(self._first(now, most))
        for parked in found:
            self.remove(parked.conn)
            parked.ready_at = now + parked.rest
            parked.rest = min(2 * parked.rest, _MOST_REST)
        return found

    def expired(self, now: float) -> list[ParkedRequest]:
        """Take out the requests whose time is over."""
        found = [parked for parked in self._parked.values() if parked.until <= now]
        for parked in found:
            self.remove(parked.conn)
        return found

    def _first(self, now: float, most: int) -> Iterator[ParkedRequest]:
        left = most
        for parked in self._parked.values():
            if not left:
                return
            if parked.ready_at <= now:
                left -= 1
                yield parked
