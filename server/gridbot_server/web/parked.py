"""The requests for work that are parked: how many, in which order, for how long.

Pure bookkeeping: sockets and time are the caller's (`parking.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count, islice
from typing import Any

from gridbot_server.dispatch.candidates import Candidate, HostView
from gridbot_server.dispatch.choose import meets_needs
from gridbot_server.dispatch.engine import Queued

# After an attempt that brought nothing a request rests, longer each time: a queue full of jobs that
# do not suit a thousand idle hosts must not cost a thousand attempts whenever it changes.
_FIRST_REST, _MOST_REST = 0.1, 2.0
_SPARE_ENDS = 1024  # of requests that are parked no more, beside twice as many as are parked


@dataclass(slots=True)
class ParkedRequest:
    """A request that found no work, and its connection."""

    conn: Any
    item: Queued
    until: float  # when it is answered without work
    rest: float = _FIRST_REST  # after the next attempt
    ready_at: float = 0.0  # when the next attempt may be made
    is_timed: bool = False  # its end is among those that are looked at
    host: HostView | None = None  # who asks, as the engine saw it at the last attempt
    unsuited: set[str] = field(default_factory=set)  # needs of BOTs that the host does not meet

    def is_suited(self, work: Mapping[str, Candidate]) -> bool:
        """Whether the host meets the needs of some BOT, of those that are listed by their needs.

        The engine decides; this spares it the attempts for hosts that cannot get any of the work.
        """
        for needs, item in work.items():
            if needs in self.unsuited:
                continue
            if self.host is None or meets_needs(self.host, item):
                return True
            self.unsuited.add(needs)
        return False


class ParkedRequests:
    """The parked requests of a web process, the oldest first; one of each client."""

    def __init__(self) -> None:
        self._parked: OrderedDict[Any, ParkedRequest] = OrderedDict()
        self._of_client: dict[bytes, ParkedRequest] = {}
        # A heap by end, so that a turn of the loop costs the same with thousands parked.  A request
        # that was answered stays in it until its end, or until there are too many such.
        self._ends: list[tuple[float, int, ParkedRequest]] = []
        self._numbers = count()

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
        self._watch_end(parked)
        return last

    def remove(self, conn: Any) -> ParkedRequest | None:
        """Take the request of a connection out; None if it is parked no more."""
        parked = self._parked.pop(conn, None)
        if parked:
            del self._of_client[parked.item.token_hash]
        return parked

    def of_client(self, token_hash: bytes) -> ParkedRequest | None:
        """The request of a client, if one is parked."""
        return self._of_client.get(token_hash)

    def oldest(self) -> ParkedRequest | None:
        """The request that was parked first."""
        return next(iter(self._parked.values()), None)

    def scout(self, now: float) -> list[ParkedRequest]:
        """Take out the oldest request, though it rests: the engine's answer tells what there is."""
        oldest = self.oldest()
        return self._take([oldest] if oldest else [], now)

    def ready(self, now: float, most: int, work: Mapping[str, Candidate]) -> list[ParkedRequest]:
        """Take out requests that some of the work may suit, and plan their rest."""
        suited = (
            parked
            for parked in self._parked.values()
            if parked.ready_at <= now and parked.is_suited(work)
        )
        return self._take(list(islice(suited, most)), now)

    def expired(self, now: float) -> list[ParkedRequest]:
        """Take out the requests whose time is over, the oldest first."""
        found = {}
        while self._ends and self._ends[0][0] <= now:
            _, number, parked = heappop(self._ends)
            parked.is_timed = False
            if self._parked.get(parked.conn) is parked:
                self.remove(parked.conn)
                found[number] = parked
        return [found[number] for number in sorted(found)]

    def _watch_end(self, parked: ParkedRequest) -> None:
        if not parked.is_timed:
            parked.is_timed = True
            heappush(self._ends, (parked.until, next(self._numbers), parked))
        if len(self._ends) > 2 * len(self._parked) + _SPARE_ENDS:
            for _, _, timed in self._ends:
                timed.is_timed = self._parked.get(timed.conn) is timed
            self._ends = [end for end in self._ends if end[2].is_timed]
            heapify(self._ends)

    def _take(self, found: list[ParkedRequest], now: float) -> list[ParkedRequest]:
        for parked in found:
            self.remove(parked.conn)
            parked.ready_at = now + parked.rest
            parked.rest = min(2 * parked.rest, _MOST_REST)
        return found
