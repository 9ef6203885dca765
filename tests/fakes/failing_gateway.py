"""Somebody's gateway before the server: it breaks one upload, and loses one reply with work."""

from __future__ import annotations

import http.client
import re
import socket
import threading
from dataclasses import dataclass

from tests.system.relay import Handler, Relay

_DATA = b"<data>\n"


@dataclass(frozen=True)
class Transfer:
    """One request to the upload handler, and the bytes of file that went on to the server."""

    name: str
    offset: int | None  # None: it asks how much is there
    size: int
    answer: str  # a status if the gateway gave it, else what the server said

    @property
    def arrived(self) -> int:
        """How much the server says that it has."""
        found = re.search(r"<file_size>(\d+)</file_size>", self.answer)
        assert found, self.answer
        return int(found[1])


class FailingGateway(Relay):
    """Lets `part` bytes of the first upload larger than that go on, and answers 503 then.

    Remembers all requests to the upload handler, and the lost reply.
    """

    def __init__(self, port: int, part: int) -> None:
        super().__init__(port)
        self.RequestHandlerClass = _Handler
        self.part = part
        self.transfers: list[Transfer] = []
        self.lost = b""
        self.spoil = self._lose_work
        self._lock = threading.Lock()
        self._has_failed = False

    def _lose_work(self, path: str, body: bytes) -> bytes | None:
        with self._lock:
            if self.lost or not path.endswith("/scheduler") or b"<workunit>" not in body:
                return body
            self.lost = body
            return None

    def since_failure(self) -> list[Transfer]:
        """What was asked and sent of the broken upload, from its failure on."""
        failed = next((item for item in self.transfers if item.answer == "503"), None)
        if failed is None:
            return []
        after = self.transfers[self.transfers.index(failed) :]
        return [item for item in after if item.name == failed.name]

    def is_to_fail(self, size: int) -> bool:
        """Whether this upload is the one."""
        with self._lock:
            fails = size > self.part and not self._has_failed
            self._has_failed |= fails
            return fails


class _Handler(Handler):
    server: FailingGateway

    def ask(self, body: bytes) -> tuple[http.client.HTTPResponse | None, bytes]:
        if not self.path.endswith("/file_upload_handler"):
            return super().ask(body)
        head, _, data = body.partition(_DATA)
        if self.server.is_to_fail(len(data)):
            part = self.server.part
            self._send_part(body[: len(head) + len(_DATA) + part], len(body))
            self._note(head, part, "503")
            self.send_error(503)
            return None, b""
        answer, content = super().ask(body)
        self._note(head, len(data), content.decode())
        return answer, content

    def _send_part(self, part: bytes, announced: int) -> None:
        """Let the connection to the server end early, and wait until the server has noticed."""
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: gateway\r\n"
            f"Content-Length: {announced}\r\nConnection: close\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", self.server.port_behind), 60) as behind:
            behind.sendall(head.encode() + part)
            behind.shutdown(socket.SHUT_WR)
            while behind.recv(4096):
                pass

    def _note(self, head: bytes, size: int, answer: str) -> None:
        text = head.decode()
        name = re.search(r"<(?:get_file_size|name)>([^<]*)<", text)
        offset = re.search(r"<offset>(\d+)</offset>", text)
        assert name, text
        self.server.transfers.append(
            Transfer(name[1], int(offset[1]) if offset else None, size, answer)
        )
