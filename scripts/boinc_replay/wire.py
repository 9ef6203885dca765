"""Sends a request as it is, whole or broken off, and tells what came back and when."""

from __future__ import annotations

import http.client
import socket
import time
from dataclasses import dataclass

SECONDS = 60.0  # an answer that takes longer is none


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; status 0 when nothing did, though the whole request was sent."""

    status: int
    body: bytes
    seconds: float


class Wire:
    """A connection to the server that is kept while both sides want to keep it."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._socket: socket.socket | None = None

    def ask(self, method: str, target: str, body: bytes = b"", source: str = "127.0.0.1") -> Answer:
        """Send a whole request; `source` is whom a proxy would name."""
        message = self._head(method, target, len(body), source) + body
        began = time.monotonic()
        for is_fresh in (self._socket is None, True):
            try:
                return self._exchange(message, method, began)
            except (ConnectionError, http.client.BadStatusLine):
                self.close()  # a kept connection may just have ended
                if is_fresh:
                    break
            except TimeoutError:
                self.close()
                break
        return Answer(0, b"", time.monotonic() - began)

    def break_off(self, method: str, target: str, body: bytes, length: int) -> Answer | None:
        """Announce `length` bytes, send fewer and hang up; the answer if there is one."""
        self.close()
        began = time.monotonic()
        try:
            connected = self._connected()
            connected.sendall(self._head(method, target, length, "127.0.0.1") + body)
            connected.shutdown(socket.SHUT_WR)
            return self._read(connected, method, began)
        except (ConnectionError, http.client.BadStatusLine):
            return None
        except TimeoutError:
            return Answer(0, b"", time.monotonic() - began)
        finally:
            self.close()

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _exchange(self, message: bytes, method: str, began: float) -> Answer:
        connected = self._connected()
        connected.sendall(message)
        return self._read(connected, method, began)

    def _read(self, connected: socket.socket, method: str, began: float) -> Answer:
        response = http.client.HTTPResponse(connected, method=method)
        try:
            response.begin()
            content = response.read()
            if response.will_close:
                self.close()
        finally:
            response.close()
        return Answer(response.status, content, time.monotonic() - began)

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, SECONDS)
        return self._socket

    def _head(self, method: str, target: str, length: int, source: str) -> bytes:
        host, port = self._address
        lines = [
            f"{method} {target} HTTP/1.1",
            f"Host: {host}:{port}",
            "User-Agent: BOINC client (x86_64-pc-linux-gnu 7.20.5)",
            f"X-Forwarded-For: {source}",
            "Accept: */*",
        ]
        if method == "POST":
            lines += [
                f"Content-Length: {length}",
                "Content-Type: application/x-www-form-urlencoded",
            ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
