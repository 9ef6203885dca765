"""HTTPS with peers of whom nobody knows how fast they answer.

The timeouts of requests hold between two pieces of an answer: who drips a byte a second keeps a
request for hours, in the head of its answer as in the body.
"""

from __future__ import annotations

import io
import socket
from contextlib import suppress
from functools import partial
from threading import Timer
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse, HTTPSConnectionPool
from urllib3.connection import HTTPSConnection


def bounded_session(seconds: float, most_bytes: int) -> requests.Session:
    """Give a session whose answers by HTTPS come whole within a time, or raise OSError.

    What is longer raises OSError, too; as it travels, so that who unpacks it counts again.
    """
    session = requests.Session()
    session.mount("https://", _Adapter(seconds, most_bytes))
    return session


class _Adapter(HTTPAdapter):
    def __init__(self, seconds: float, most_bytes: int) -> None:
        self._pool = partial(_Pool, seconds=seconds, most_bytes=most_bytes)
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self._bind(self.poolmanager)

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        return self._bind(super().proxy_manager_for(*args, **options))

    def _bind(self, manager: Any) -> Any:
        manager.pool_classes_by_scheme = {"https": self._pool}
        return manager


class _Pool(HTTPSConnectionPool):
    def __init__(self, *args: Any, seconds: float, most_bytes: int, **options: Any) -> None:
        super().__init__(*args, **options)
        made = partial(_Connection, seconds=seconds, most_bytes=most_bytes)
        self.ConnectionCls = made  # type: ignore[assignment]


class _Connection(HTTPSConnection):
    def __init__(self, *args: Any, seconds: float, most_bytes: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self._seconds, self._most_bytes = seconds, most_bytes
        self._is_late = False

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]
        """Read the whole answer, and cut the connection if that takes too long."""
        self._is_late = False
        cut = Timer(self._seconds, self._cut, [self.sock])
        cut.daemon = True
        cut.start()
        try:
            answer = super().getresponse()
            content = answer.read(self._most_bytes + 1, decode_content=False)
        finally:
            cut.cancel()
            if self._is_late:
                raise OSError(f"its answer was not there after {self._seconds:.0f} s")
        if len(content) > self._most_bytes:
            self.close()
            raise OSError(f"its answer is longer than {self._most_bytes >> 20} MiB")
        return HTTPResponse(
            io.BytesIO(content), answer.headers, answer.status, reason=answer.reason,
            preload_content=False, decode_content=False,
            original_response=answer._original_response,  # when that is over, the next may be asked
        )  # fmt: skip

    def _cut(self, connected: socket.socket) -> None:
        self._is_late = True
        with suppress(OSError):  # it has gone
            socket.socket.shutdown(connected, socket.SHUT_RDWR)
