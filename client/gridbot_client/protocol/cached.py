"""What a client tells of its cache, so that policies may prefer hosts that hold a BOT's inputs.

It names the largest of its files by marks, which are cut hashes of the names that they have in its
cache.  So a server recognises the inputs of its own BOTs there, and learns nothing else.
"""

from __future__ import annotations

import hashlib
import re

MAX_TOLD = 64  # files
LEAST_BYTES = 1 << 20  # of a file that is told of: to tell costs a thousandth of what it saves

_MARK = re.compile(r"[0-9a-f]{16}")


def cache_name(sha256: str, owner: str = "") -> str:
    """Name of a file in caches; one that is kept for an owner alone is another file for others."""
    return f"{sha256}-{hashlib.sha256(owner.encode()).hexdigest()}" if owner else sha256


def mark_of(name: str) -> str:
    """The mark of a file by its name in caches."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def is_mark(text: str) -> bool:
    """True for what may be a mark."""
    return _MARK.fullmatch(text) is not None
