"""What hosts' widths leave room for, within one batch of host requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gridbot_server.dispatch.batch import SQL, ClientRow, Exchange
from gridbot_server.dispatch.leases import NewLease
from gridbot_server.matching import width
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode, fetch


class _Unjudged(NamedTuple):
    """What a client's host, and its crew, have in progress or unjudged."""

    client: int
    of_host: int
    of_crew: int


class Widths:
    """The room that hosts and crews have left; a host that is not bounded has any.

    Processes that serve hosts of one crew at once take turns until their commits, so that each sees
    what the others gave.
    """

    def __init__(self) -> None:
        self._hosts: dict[int, int] = {}
        self._crews: dict[str, int] = {}
        self._unjudged: dict[int, int] = {}

    @classmethod
    def of(cls, conn: Connection, exchanges: Iterable[Exchange], matters: bool) -> Widths:
        """Look up what the hosts of a batch have unjudged, if that matters to any BOT."""
        made = cls()
        clients = [item.client for item in exchanges if not item.client.dedicated]
        if not matters or not clients:
            return made
        rows = [
            {"client": item.id, "host": item.host, "crew": item.crew, "most": _most(item)}
            for item in clients
        ]
        if narrow := sorted({item.crew for item in clients if item.crew_width < width.FULL}):
            conn.execute(SQL["lock_crews"], {"crews": narrow})
        known = {item.id: item for item in clients}
        for found in fetch(conn, _Unjudged, SQL["unjudged"], {"clients": encode(rows)}):
            client = known[found.client]
            made._unjudged[client.host] = found.of_host
            made._hosts[client.host] = width.room(client.width, found.of_host)
            made._crews[client.crew] = width.room(client.crew_width, found.of_crew)
        return made

    def room(self, client: ClientRow) -> int | None:
        """Return how many replicas of strangers' BOTs the client may have; None for any."""
        if client.host not in self._hosts:
            return None
        return max(0, min(self._hosts[client.host], self._crews[client.crew]))

    def unjudged(self, client: ClientRow) -> int:
        """Return what its host has in progress or unjudged; 0 if that cannot matter."""
        return self._unjudged.get(client.host, 0)

    def take(self, client: ClientRow, leases: Iterable[NewLease]) -> None:
        """Note what a client was given."""
        if client.host in self._hosts:
            count = sum(lease.is_bounded for lease in leases)
            self._hosts[client.host] -= count
            self._unjudged[client.host] += count
            self._crews[client.crew] -= count


def _most(client: ClientRow) -> int:
    """How many it makes sense to count."""
    widest = max(client.width, client.crew_width)
    return 0 if min(client.width, client.crew_width) >= width.FULL else int(widest) + 1
