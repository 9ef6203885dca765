"""Sends requests to a server, and counts what comes back."""

from __future__ import annotations

import http.client
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .requests import CONTENT, SHA256, Cast, Request, Requests

_SECONDS = 60.0  # an answer that takes longer is none
_REQUESTS_PER_CAST = 400  # by then its keys are revoked, its hosts banned, its BOTs deleted
_MOST_FAULTS = 5  # that are kept of one operation


@dataclass(slots=True)
class Outcome:
    """What became of all requests."""

    requests: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    succeeded: Counter[str] = field(default_factory=Counter)  # by operation
    failed: Counter[str] = field(default_factory=Counter)  # by operation
    operations: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def add(self, request: Request, status: int, body: bytes) -> None:
        """Count one answer; one of 500 and above, or none, is a fault, but for a busy server's."""
        self.requests += 1
        self.statuses[status] += 1
        self.operations.add(request.name)
        if status and status < 400:
            self.succeeded[request.name] += 1
        if (status == 0 or status >= 500) and status != http.HTTPStatus.SERVICE_UNAVAILABLE:
            told = f"{request.method} {request.target[:300]} {request.body[:500]!r}"
            self.failed[request.name] += 1
            if self.failed[request.name] <= _MOST_FAULTS:
                self.faults.append(f"{status or 'no answer'}: {told} gave {body[:200]!r}")


class Wire:
    """A connection to the server that is kept as long as both sides want to."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._made = http.client.HTTPConnection(
            address.hostname or "", address.port, timeout=_SECONDS
        )

    def send(self, request: Request) -> tuple[int, bytes]:
        """Return status and body of the answer; status 0 if there is none."""
        for _ in range(2):  # a kept connection may just have ended
            try:
                headers = {"Authorization": f"Bearer {request.token}", **request.headers}
                self._made.request(request.method, request.target, request.body or None, headers)
                answer = self._made.getresponse()
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException) as error:
                self._made.close()
                found = repr(error).encode()
        return 0, found

    def json(self, method: str, path: str, token: str, body: object = None) -> dict[str, object]:
        """Send a request that is right; return the document that answers."""
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        status, said = self.send(Request("", method, f"/api/v1{path}", token, data, headers))
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {said[:300]!r}")
        found = json.loads(said)
        assert isinstance(found, dict)
        return found

    def close(self) -> None:
        """Hang up."""
        self._made.close()


def run(url: str, operator: str, seed: int, is_over: Callable[[Outcome], bool]) -> Outcome:
    """Send requests until it is over; the cast is made anew from time to time."""
    wire, rng, outcome = Wire(url), random.Random(seed), Outcome()
    try:
        _, document = wire.send(Request("", "GET", "/api/v1/openapi.json", ""))
        requests = Requests(json.loads(document), rng)
        while not is_over(outcome):
            made = requests.make(_cast(wire, operator, rng))
            for _ in range(_REQUESTS_PER_CAST):
                request = next(made)
                outcome.add(request, *wire.send(request))
                if is_over(outcome):
                    break
    finally:
        wire.close()
    return outcome


def _cast(wire: Wire, operator: str, rng: random.Random) -> Cast:
    """Make owners, keys of all scopes, a client, a file and BOTs, as the operator."""
    name = f"person{rng.randrange(10**9)}"
    wire.json("POST", "/owners", operator, {"name": name, "operator": True})
    tokens, numbers = ["", "gb_unknown"], [1, 2, 3]
    for scope in ("user", "operator", "join"):
        made = wire.json("POST", "/tokens", operator, {"owner": name, "scope": scope})
        tokens += [str(made["token"])] * (3 if scope != "join" else 1)
    user, join = tokens[2], tokens[-1]
    host = {"Name": "box", "NumCpus": 4, "Memory": 8192, "Disk": 10**5, "Platform": "linux-x86_64"}
    mac = ":".join(f"{rng.randrange(256):02x}" for _ in range(6))
    client = wire.json("POST", "/clients", join, {"host": host, "mac": mac})
    tokens += [str(client["token"])] * 3
    wire.send(
        Request("", "PUT", f"/api/v1/blobs/{SHA256}?size={len(CONTENT)}&offset=0", user, CONTENT)
    )
    for jobs in ({"range": [0, 5, 1]}, {"stream": True}):
        body = {
            "submit_key": f"{name} {len(numbers)}", "name": "scan", "command": ["echo", "{i}"],
            "placeholders": {"i": "int"}, "jobs": jobs,
            "inputs": [{"name": "data", "sha256": SHA256, "size": len(CONTENT)}],
        }  # fmt: skip
        numbers.append(int(str(wire.json("POST", "/bots", user, body)["id"])))
    numbers.append(int(str(client["client"])))
    return Cast(tokens, numbers, spared={1})
