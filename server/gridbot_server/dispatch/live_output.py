"""Live output: clients send the next bytes of what somebody follows with their requests.

The reply to a request says from where on: so much is here.  What is sent begins there, or it
changes nothing.  So nothing is lost or comes twice, whatever requests or replies are lost.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

from gridbot_client.protocol.messages import MAX_FOLLOWED, Followed
from gridbot_server.dispatch.batch import Exchange
from gridbot_server.dispatch.replies import ReplyParts
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import array, encode, fetch, fetch_values

SQL = sql.load("live_output.sql")

MOST_BYTES = 512 << 10  # of one stream that nobody has read: no more is asked for
SHOWN_BYTES = 32 << 10  # the last ones of a stream, for pages
_LOOK_SECONDS = 0.5  # how often it is looked for whom somebody follows
_BEAT_SECONDS = 1.0  # between the requests of a client that is followed


class _Followed(NamedTuple):
    """A stream that a client is to send."""

    client: int
    bot: int
    seq: int
    replica: int
    stream: str
    at: int


class Followers:
    """What a web process knows of who is followed; used by its writer thread only."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._looked_at = -math.inf
        self._clients: Set[int] = frozenset()

    def serve(
        self, conn: Connection, exchanges: Sequence[Exchange], replies: Mapping[int, ReplyParts]
    ) -> None:
        """Take what followed clients sent, and tell them what to send next."""
        if self._clock() - self._looked_at >= _LOOK_SECONDS:
            self._clients = frozenset(fetch_values(conn, int, SQL["followed_clients"], {}))
            self._looked_at = self._clock()
        _take(conn, exchanges)
        if clients := self._clients & replies.keys():
            _tell(conn, clients, replies)


def _take(conn: Connection, exchanges: Sequence[Exchange]) -> None:
    pieces = [
        {
            **piece.id._asdict(),
            "stream": piece.stream,
            "at": piece.at,
            "content": base64.b64encode(piece.content).decode(),
            "client": exchange.client.id,
        }
        for exchange in exchanges
        for piece in exchange.request.live
    ]
    if pieces:
        values = {"pieces": encode(pieces), "most": MOST_BYTES, "shown": SHOWN_BYTES}
        for name in ("append", "append_shown"):
            conn.execute(SQL[name], values)


def _tell(conn: Connection, clients: Set[int], replies: Mapping[int, ReplyParts]) -> None:
    wanted = {"clients": array(clients), "most": MOST_BYTES, "limit": MAX_FOLLOWED * len(clients)}
    for item in fetch(conn, _Followed, SQL["followed"], wanted):
        reply = replies[item.client]
        if len(reply.follow) < MAX_FOLLOWED:
            reply.follow.append(Followed(item.bot, item.seq, item.replica, item.stream, item.at))
            reply.next_request_seconds = min(reply.next_request_seconds, _BEAT_SECONDS)
