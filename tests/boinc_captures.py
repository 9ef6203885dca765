"""Requests that a stock client really sent, put together from the parts in `data/boinc`."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.boinc.protocol.names import Lease, Names

DATA = Path(__file__).parent / "data" / "boinc"
NAMES = Names(b"the server's secret")
FACTS: dict[str, dict[str, Any]] = json.loads((DATA / "facts.json").read_text())
CLIENT = 7

_CAPTURED = re.compile(r"\b(?:j|a|s|d|st)_[a-z0-9]+_r0|\b[a-z0-9]+_\d_r0")


@cache
def captures() -> dict[str, bytes]:
    """All captured requests by name."""
    _, *parts = re.split(r"^=== (\S+) (.*)\n", (DATA / "requests.txt").read_text(), flags=re.M)
    return {
        name: _request(json.loads(head), tail)
        for name, head, tail in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }


def others() -> list[tuple[str, str, str, bytes]]:
    """Captured requests to other pages than the scheduler's: name, method, path, body."""
    heads = r"^=== (\S+) (\S+) (\S*)\n"
    _, *parts = re.split(heads, (DATA / "others.txt").read_text(), flags=re.M)
    rows = zip(parts[::4], parts[1::4], parts[2::4], parts[3::4], strict=True)
    return [(name, method, path, body[:-1].encode()) for name, method, path, body in rows]


def _request(head: dict[str, Any], tail: str) -> bytes:
    text = (DATA / "frame.txt").read_text()
    key = (DATA / "code_sign_key.txt").read_text() if head.pop("has_key") else ""
    for name, value in {**head, "code_sign_key": key}.items():
        text = text.replace(f"@{name}@", value)
    return (text + tail).encode()


def ours(capture: str) -> bytes:
    """A captured request in which each replica has a name that our server would give it."""
    return _CAPTURED.sub(lambda found: our_name(found[0]), captures()[capture].decode()).encode()


def our_name(captured: str) -> str:
    """The name that stands for a captured one."""
    return NAMES.replica(our_lease(captured))


def our_lease(captured: str) -> Lease:
    """The lease that stands for a captured name: its job's number is made of the letters."""
    return Lease(ReplicaId(3, int.from_bytes(captured[:7].encode()), 0), CLIENT)
