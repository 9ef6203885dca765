"""What the hosts of one batch have proven, and which copies their jobs need for that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.dispatch.batch import SQL, ClientRow, Exchange
from gridbot_server.dispatch.candidates import Candidate
from gridbot_server.dispatch.catalog import Entry
from gridbot_server.matching.assurance import Credence, further_copies
from gridbot_server.matching.track_record import NEWCOMER, TrackRecord, coin
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch, fetch_only_value

_NONE: Mapping[bytes, int] = MappingProxyType({})


class _RecordRow(NamedTuple):
    """The track record of a host or a crew."""

    who: str
    program: bytes
    streak: int
    caught: int


class Records:
    """Track records of the hosts of a batch and of their crews; none where no BOT wants them."""

    def __init__(self, secret: str = "") -> None:
        self._secret = secret
        self._known: dict[tuple[str, bytes], TrackRecord] = {}
        self._bounds: dict[str, dict[bytes, int]] = {}

    @classmethod
    def of(cls, conn: Connection, exchanges: Iterable[Exchange], matters: bool) -> Records:
        """Look up the records of a batch, if they matter to any BOT."""
        if not matters:
            return cls()
        made = cls(fetch_only_value(conn, str, SQL["coins"]))
        who = sorted({name for item in exchanges for name in _names(item.client)})
        for row in fetch(conn, _RecordRow, SQL["records"], {"who": who}):
            record = TrackRecord(row.streak, row.caught)
            made._known[row.who, row.program] = record
            if (most := record.most_held) is not None:
                made._bounds.setdefault(row.who, {})[row.program] = most
        return made

    def bounds(self, client: ClientRow) -> Mapping[bytes, int]:
        """Return the most that the client's host may hold of programs with which it was caught."""
        return self._bounds.get(_names(client)[0], _NONE) if self._bounds else _NONE

    def further_copies(
        self, client: ClientRow, candidate: Candidate, entry: Entry, name: ReplicaId
    ) -> int:
        """Return the copies that a job needs at once beside the one that the client gets."""
        if name.seq in entry.known:
            return 0  # its owner checks it
        if entry.terms is None:
            return entry.quorum - 1
        host, crew = _names(client)
        answer = Credence(
            host=self._known.get((host, entry.program), NEWCOMER),
            crew=self._known.get((crew, entry.program), NEWCOMER),
            is_vouched=client.owner == candidate.owner or client.dedicated,
            coin=coin(self._secret, *name),
        )
        return further_copies(answer, entry.terms)


def _names(client: ClientRow) -> tuple[str, str]:
    """How the client's host and crew are called among track records."""
    return f"host {client.host}", client.crew
