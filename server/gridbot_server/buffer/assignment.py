"""Assignments as JSON: the feeder prepares them once, a host's request only completes them."""

from __future__ import annotations

from gridbot_client.protocol import numbers
from gridbot_client.protocol.messages import ReplicaId


def prepared(name: ReplicaId, manifest: str, args: str, inputs: str, proof: str = "") -> bytes:
    """An assignment without its deadline and closing brace.

    `args` and `inputs` are JSON texts, `proof` is base64.
    """
    args = numbers.exact(args)
    head = f'{{"id":[{name.bot},{name.seq},{name.replica}],"manifest":"{manifest}"'
    proof = f',"proof":"{proof}"' if proof else ""
    return f'{head},"args":{args},"inputs":{inputs}{proof}'.encode()


def completed(assignment: bytes, deadline_seconds: float) -> bytes:
    """The whole of a prepared assignment."""
    return b'%b,"deadline_seconds":%.3f}' % (assignment, deadline_seconds)
