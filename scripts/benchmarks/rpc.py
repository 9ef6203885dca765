"""A bare client of the native protocol: one host, one kept connection, no disk, no processes."""

from __future__ import annotations

import http.client
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from gridbot_client.agent import Room
from gridbot_client.host import description
from gridbot_client.protocol.messages import (
    Report,
    WorkReply,
    WorkRequest,
    decode_reply,
    encode_request,
)

from .installation import BenchFailed

_ANSWER_SECONDS = 60.0


class Client:
    """Joins at once; each instance is a host of its own."""

    def __init__(self, url: str, key: str, name: str) -> None:
        self._connection = http.client.HTTPConnection(
            url.removeprefix("http://"), timeout=_ANSWER_SECONDS
        )
        self._host = description.attributes(Room(1, 4096), Path("/tmp"))
        joining = {"host": self._host, "mac": name, "accepts": []}
        answer = self._post("/api/v1/clients", key, json.dumps(joining).encode())
        self.token = str(json.loads(answer)["token"])
        self._seqno = 0
        self._manifests: set[str] = set()

    def close(self) -> None:
        """Hang up; the next request opens a connection again."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def exchange(self, want: int, reports: Sequence[Report]) -> WorkReply:
        """Report what ended and ask for `want` replicas."""
        self._seqno += 1
        request = WorkRequest(
            key=uuid.uuid4().hex,
            seqno=self._seqno,
            host=self._host,
            want=want,
            reports=tuple(reports),
            manifests=tuple(self._manifests),
        )
        reply = decode_reply(self._post("/rpc", self.token, encode_request(request)))
        self._manifests.update(reply.manifests)
        return reply

    def _post(self, path: str, token: str, body: bytes) -> bytes:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection.request("POST", path, body, headers)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status not in (200, 201):
            raise BenchFailed(f"{path} answers {response.status}: {answer[:300]!r}")
        return answer
