"""What the hosts of one batch hold in their caches, as they told when it changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gridbot_server.dispatch.batch import SQL, ClientRow, Exchange
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import array, encode, fetch


class _Told(NamedTuple):
    """What a client told last."""

    client: int
    marks: Sequence[str]


class Caches:
    """Marks of what clients hold; nothing where no policy looks at that."""

    def __init__(self) -> None:
        self._marks: dict[int, Sequence[str]] = {}

    @classmethod
    def of(cls, conn: Connection, exchanges: Iterable[Exchange], matters: bool) -> Caches:
        """Look up what the clients of a batch hold, if that matters to any BOT."""
        made = cls()
        if matters:
            clients = array(item.client.id for item in exchanges)
            made._marks = dict(fetch(conn, _Told, SQL["caches"], {"clients": clients}))
        return made

    def marks(self, client: ClientRow) -> Sequence[str]:
        """Return the marks of what a client told that it holds."""
        return self._marks.get(client.id, ())


def note_caches(conn: Connection, exchanges: Iterable[Exchange]) -> None:
    """Keep what clients tell of their caches, which they do when it has changed."""
    told = [
        {"client": exchange.client.id, "marks": exchange.request.cached}
        for exchange in sorted(exchanges, key=lambda item: item.client.id)
        if exchange.request.cached is not None
    ]
    if told:
        conn.execute(SQL["note_caches"], {"told": encode(told)})
