"""Hosts whose requests for work wait in the server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.system.bare_client import BareClient
from tests.system.deployment import Deployment, eventually
from tests.system.test_rpc_wire import answer, message

from gridbot_client.protocol.messages import ReplicaId, WorkRequest, encode_request


def is_silent(wire: socket.socket) -> bool:
    """Whether nothing has come on a connection that is still open."""
    wire.setblocking(False)
    try:
        wire.recv(1, socket.MSG_PEEK)
        return False
    except BlockingIOError:
        return True
    finally:
        wire.settimeout(60)


class Waiting:
    """A host whose request waits, on a connection of its own."""

    def __init__(
        self, server: Deployment, client: BareClient, wait: float = 50.0, port: int | None = None
    ) -> None:
        self.server, self.client = server, client
        self.wire = socket.create_connection(("127.0.0.1", port or server.port), 60)
        self.ask(wait)

    def ask(self, wait: float, holding: tuple[ReplicaId, ...] = ()) -> None:
        made = self.client.request()
        self.request = WorkRequest(made.key, made.seqno, made.host, made.want, holding, wait=wait)
        self.wire.sendall(message(encode_request(self.request), self.client.token))

    def answer(self) -> Any:
        with self.wire.makefile("rb") as replies:
            return answer(replies)[2]

    def is_noted(self) -> bool:
        """Whether the server has served it once."""
        query = "SELECT true FROM client WHERE last_key = %s"
        return bool(self.server.rows(query, self.request.key))

    def is_silent(self) -> bool:
        """Whether no answer has come so far."""
        return is_silent(self.wire)


@contextmanager
def waiting(server: Deployment, *names: str, port: int | None = None) -> Iterator[list[Waiting]]:
    """Hosts of these names that wait; at `port`, that of a proxy, say."""
    with ExitStack() as stack:
        found = [Waiting(server, server.bare_client(name), port=port) for name in names]
        for item in found:
            stack.enter_context(item.wire)
        for item in found:
            eventually(item.is_noted, what="the request")
        yield found
