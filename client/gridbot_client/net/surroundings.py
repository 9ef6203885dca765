"""Which addresses a server may lead a client to: not those of a network that it is not in itself.

A client stands in its owner's network, where a router or a printer trusts whoever asks.  A server
on the internet could have the client ask them.  So an address that is not public is a store's only
if the server that leads there has none either.  What counts is the address of a connection, looked
at before anything is sent: a name may stand for another address at each look-up.  Where a proxy
makes the connections, it decides.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from gridbot_client.protocol.networks import Network, network_of

Look = Callable[[socket.socket], None]  # may raise, so that the connection is not used


class ForbiddenAddress(ValueError):
    """A place that a server may not lead to; the message says why."""


class Surroundings:
    """What a client knows of where its server is."""

    def __init__(self) -> None:
        self._server = ""

    def note_server(self, address: str) -> None:
        """Note the address of a connection to the server."""
        self._server = address

    def check(self, address: str) -> None:
        """Raise ForbiddenAddress if the server may not lead to this address."""
        if not may_lead(self._server, address):
            raise ForbiddenAddress(
                f"the server leads to {address}, an address inside of a network that the server"
                " itself is not in; its store needs a public address"
            )


def may_lead(server: str, place: str) -> bool:
    """Whether a server at one address may lead clients to the other; "": it is not known."""
    there = network_of(place)
    if there is Network.PUBLIC:
        return True
    here = network_of(server) if server else Network.PUBLIC
    if here is Network.PUBLIC:
        return False
    return here is Network.LOOPBACK or there not in (Network.LOOPBACK, Network.LINK)


class LookingAdapter(HTTPAdapter):
    """Makes connections for `requests`, and has each peer's address looked at before it is used."""

    def __init__(self, look: Callable[[str], None], **options: Any) -> None:
        self._pools = connection_pools(lambda connection: look(connection.getpeername()[0]))
        super().__init__(**options)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """Make the pools of connections."""
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = self._pools


def connection_pools(look: Look) -> dict[str, type[HTTPConnectionPool]]:
    """Pools of connections that are looked at when they are made, before anything is sent."""

    class LookingConnection(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _looked_at(super()._new_conn(), look)

    class SafeLookingConnection(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _looked_at(super()._new_conn(), look)

    class LookingPool(HTTPConnectionPool):
        ConnectionCls = LookingConnection

    class SafeLookingPool(HTTPSConnectionPool):
        ConnectionCls = SafeLookingConnection

    return {"http": LookingPool, "https": SafeLookingPool}


def _looked_at(connection: socket.socket, look: Look) -> socket.socket:
    try:
        look(connection)
    except BaseException:
        connection.close()
        raise
    return connection
