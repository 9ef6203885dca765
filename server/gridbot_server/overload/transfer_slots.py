"""Transfer slots: a bounded semaphore for the threads that transfers may hold, with fair shares.

| holder     | may hold                                   |
|------------|--------------------------------------------|
| all        | `total`                                    |
| one client | a quarter of `total`, at least one         |
| one owner  | no more than are free, so at most about half |

Nobody waits for a slot: without one, the request is refused with 503 (load shedding).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

from gridbot_server.errors import ServerBusy


class Party(NamedTuple):
    """Who wants a slot, and who owns that client; empty where unknown."""

    client: str = ""
    owner: str = ""


class Slots:
    """A bounded semaphore that never blocks, with a bound per client and one per owner.

    An owner may hold as many as are free.  So one owner leaves half, and the next half of that.
    """

    def __init__(self, total: int, what: str = "transfers") -> None:
        """`what` is taken, for those who get none."""
        self._what, self._free, self._few = what, total, max(1, total // 4)
        self._clients: Counter[str] = Counter()
        self._owners: Counter[str] = Counter()
        self._lock = Lock()

    def take(self, party: Party) -> None:
        """Take a slot, which must be released; raise ServerBusy when there is none for it."""
        client, owner = party
        with self._lock:
            if not self._free:
                raise ServerBusy(f"too many {self._what} at once, try again later")
            if client and self._clients[client] >= self._few:
                raise ServerBusy(f"too many {self._what} of this client at once, try again later")
            if owner and self._owners[owner] >= self._free:
                raise ServerBusy(f"too many {self._what} of this owner at once, try again later")
            self._count(party, 1)

    def release(self, party: Party) -> None:
        """End what `take` began."""
        with self._lock:
            self._count(party, -1)

    @contextmanager
    def held(self, party: Party) -> Iterator[None]:
        """Hold a slot while the block runs."""
        self.take(party)
        try:
            yield
        finally:
            self.release(party)

    def _count(self, party: Party, change: int) -> None:
        self._free -= change
        for counter, name in ((self._clients, party.client), (self._owners, party.owner)):
            counter[name] += change
            if not counter[name]:
                del counter[name]
