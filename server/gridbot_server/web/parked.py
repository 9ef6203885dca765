"""The requests for work that are parked: how many, in which order, for how long.

Pure bookkeeping: sockets and time are the caller's (`parking.py`).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from gridbot_server.dispatch.candidates import Candidate, HostView
from gridbot_server.dispatch.choose import meets_needs
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
        self._next_end = math.inf  # none ends before

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
        self._next_end = min(self._next_end, parked.until)
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
        """Take out the requests whose time is over."""
        if now < self._next_end:
            return []
        found = [parked for parked in self._parked.values() if parked.until <= now]
        for parked in found:
            self.remove(parked.conn)
        self._next_end = min((parked.until for parked in self._parked.values()), default=math.inf)
        return found

    def _take(self, found: list[ParkedRequest], now: float) -> list[ParkedRequest]:
        for parked in found:
            self.remove(parked.conn)
            parked.ready_at = now + parked.rest
            parked.rest = min(2 * parked.rest, _MOST_REST)
        return found
