"""Asks servers of others: an answer is read whole, but no more than one has, and no longer."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError

from gridbot_server.overload.slow_answers import broken_off


class AnswerTooLong(requests.RequestException):
    """The other server sends more than is read."""


class AnswerTooLate(requests.RequestException):
    """The other server did not send all in time."""


@contextmanager
def bounded(session: requests.Session, seconds: float, most_bytes: int) -> Iterator[None]:
    """Bound all that a session asks in time, and each answer in bytes.

    It raises requests.RequestException.
    """
    with ExitStack() as links:
        adapter = _Adapter(links, seconds, most_bytes)
        for scheme in ("http://", "https://"):
            session.mount(scheme, adapter)
        yield


class _Adapter(HTTPAdapter):
    """Breaks its connections off at a time: the timeout of `requests` is for each wait alone."""

    def __init__(self, links: ExitStack, seconds: float, most_bytes: int) -> None:
        self._ends_at = time.monotonic() + seconds
        self._pools = _pools(links, self._ends_at)
        self._seconds, self._most_bytes = seconds, most_bytes
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        manager = super().proxy_manager_for(*args, **options)
        manager.pool_classes_by_scheme = self._pools
        return manager

    def send(
        self, request: requests.PreparedRequest, *args: Any, **options: Any
    ) -> requests.Response:
        answer = super().send(request, *args, **{**options, "timeout": self._seconds})
        try:
            with closing(answer.raw) as raw:
                content = _read(raw, self._most_bytes)
        except HTTPError as error:
            raise requests.ConnectionError(error, response=answer) from None
        if len(content) > self._most_bytes:
            raise AnswerTooLong(response=answer)
        if time.monotonic() >= self._ends_at:
            raise AnswerTooLate(response=answer)
        answer.raw = io.BytesIO(content)
        return answer


def _read(raw: Any, most: int) -> bytes:
    """Read a body, or a little more of it than an answer may have."""
    read = bytearray()
    while len(read) <= most and (part := raw.read1(most, decode_content=False)):
        read += part
    return bytes(read)


def _pools(links: ExitStack, ends_at: float) -> dict[str, type[HTTPConnectionPool]]:
    def begun(link: socket.socket) -> socket.socket:
        links.enter_context(broken_off(link, ends_at))
        return link

    class BoundedConnection(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return begun(super()._new_conn())

    class BoundedSafeConnection(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return begun(super()._new_conn())

    class BoundedPool(HTTPConnectionPool):
        ConnectionCls = BoundedConnection

    class BoundedSafePool(HTTPSConnectionPool):
        ConnectionCls = BoundedSafeConnection

    return {"http": BoundedPool, "https": BoundedSafePool}
