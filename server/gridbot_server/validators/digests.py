"""The digest of an answer: equal for answers that are equal to the last bit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from gridbot_client.protocol.messages import Output


def digest(outputs: Iterable[Output]) -> str:
    """Return what an exact comparison compares: a hash over names and contents, in hex."""
    lines = [f"{output.name}\0{output.sha256}\n" for output in outputs]
    lines.sort()
    return hashlib.sha256("".join(lines).encode()).hexdigest()
