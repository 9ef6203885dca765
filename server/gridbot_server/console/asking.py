"""Asks an OpenID provider: an answer is read whole, but no more than one has, and no longer."""

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

_SECONDS = 5.0  # for all that one session asks
_MOST_BYTES = 256 << 10  # of an answer


class AnswerTooLong(requests.RequestException):
    """The provider sends more than is read."""


class AnswerTooLate(requests.RequestException):
    """The provider did not send all in time."""


@contextmanager
def bounded(session: requests.Session) -> Iterator[None]:
    """Bound what a session asks, in time and in bytes.  It raises requests.RequestException."""
    with ExitStack() as links:
        adapter = _Adapter(links, time.monotonic() + _SECONDS)
        for scheme in ("http://", "https://"):
            session.mount(scheme, adapter)
        yield


class _Adapter(HTTPAdapter):
    """Breaks its connections off at a time: the timeout of `requests` is for each wait alone."""

    def __init__(self, links: ExitStack, ends_at: float) -> None:
        self._pools, self._ends_at = _pools(links, ends_at), ends_at
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
        answer = super().send(request, *args, **{**options, "timeout": _SECONDS})
        try:
            with closing(answer.raw) as raw:
                content = _read(raw)
        except HTTPError as error:
            raise requests.ConnectionError(error, response=answer) from None
        if len(content) > _MOST_BYTES:
            raise AnswerTooLong(response=answer)
        if time.monotonic() >= self._ends_at:
            raise AnswerTooLate(response=answer)
        answer.raw = io.BytesIO(content)
        return answer


def _read(raw: Any) -> bytes:
    """Read a body, or a little more of it than an answer may have."""
    read = bytearray()
    while len(read) <= _MOST_BYTES and (part := raw.read1(_MOST_BYTES, decode_content=False)):
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
