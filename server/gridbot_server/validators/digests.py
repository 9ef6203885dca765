"""The digest of an answer: equal for answers that are equal to the last bit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from gridbot_client.protocol.messages import Output

_HASH_BYTES = 32


def digest(outputs: Iterable[Output], exit_code: int | None = 0) -> str:
    """Return what an exact comparison compares: a hash over names and contents, in hex.

    Where an exit code is an answer it stands behind the hash, unless it is 0.
    """
    lines = [f"{output.name}\0{output.sha256}\n" for output in outputs]
    lines.sort()
    code = (exit_code or 0) & 0xFFFFFFFF
    return hashlib.sha256("".join(lines).encode()).hexdigest() + (f"{code:08x}" if code else "")


def have_one_exit_code(one: bytes, other: bytes) -> bool:
    """Whether answers with these digests ended with the same exit code."""
    return one[_HASH_BYTES:] == other[_HASH_BYTES:]
