"""A client of nothing but requests: it says what a test wants said, true or not."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import requests

from gridbot_client.protocol.manifest import LATEST
from gridbot_client.protocol.messages import (
    Report,
    Scalar,
    WorkReply,
    WorkRequest,
    decode_reply,
    encode_request,
)

NO_HEADERS: Mapping[str, str] = {}
HOST: dict[str, Scalar] = {
    "Name": "bare",
    "NumCpus": 1,
    "Memory": 4096,
    "Disk": 10_240,
    "OpSys": "LINUX",
    "Arch": "X86_64",
    "Platform": "linux-x86_64",
    "ManifestVersion": LATEST,
}


@dataclass
class BareClient:
    """Speaks the native protocol on behalf of a host of its own."""

    url: str
    token: str
    seqno: int = 0
    receipt: str = ""
    trusts: tuple[str, ...] = ()

    @classmethod
    def join(cls, url: str, key: str, host: str) -> BareClient:
        """Become a client of the server, on a host of that identity."""
        answer = requests.post(
            f"{url}/api/v1/clients",
            json={"host": HOST, "mac": host, "protocol": 2},
            headers={"Authorization": f"Bearer {key}"},
            timeout=30,
        )
        answer.raise_for_status()
        joined = answer.json()
        made = cls(url, joined["token"], 0, joined["receipt"], tuple(joined["owner_keys"]))
        trusts = {"protocol": 2, "trusts": made.trusts}
        requests.put(
            f"{url}/api/v1/clients/self",
            json=trusts,
            headers={"Authorization": f"Bearer {made.token}"},
            timeout=30,
        ).raise_for_status()
        return made

    def again(self) -> tuple[str, dict[str, object]]:
        """How to join a server that was restored from before this client joined: path and body."""
        body = {"host": HOST, "receipt": self.receipt, "protocol": 2, "trusts": self.trusts}
        return "/api/v1/clients/again", body

    def take_in(self, joined: Mapping[str, str]) -> None:
        """Go on as the client that a restored server made of this one."""
        self.token, self.receipt = joined["token"], joined["receipt"]

    def request(self, want: int = 1, reports: tuple[Report, ...] = ()) -> WorkRequest:
        """Make up a new request."""
        self.seqno += 1
        return WorkRequest(uuid.uuid4().hex, self.seqno, HOST, want, reports=reports)

    def send(self, request: WorkRequest) -> WorkReply:
        """Send a request, which may have been sent before."""
        answer = self.call("POST", "/rpc", encode_request(request))
        answer.raise_for_status()
        return decode_reply(answer.content)

    def ask(self, want: int = 1, reports: tuple[Report, ...] = ()) -> WorkReply:
        """Make a new request."""
        return self.send(self.request(want, reports))

    def call(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = NO_HEADERS
    ) -> requests.Response:
        """Send anything at all, on a connection of its own: any web process may get it."""
        headers = {"Authorization": f"Bearer {self.token}", **headers}
        return requests.request(method, self.url + path, data=body, headers=headers, timeout=30)
