"""Text of others for terminals and logs."""

from __future__ import annotations

import re
import unicodedata

_UNSAFE = re.compile(r"[^\x20-\x7e]")


def printable(text: str, keep: str = "") -> str:
    """Text with control characters escaped, except those in `keep`.

    A job's output, or what a server says, may hold sequences that move the cursor, rename the
    window or reverse the direction of writing.
    """
    return _UNSAFE.sub(lambda match: _shown(match[0], keep), text)


def _shown(char: str, keep: str) -> str:
    if char in keep or unicodedata.category(char)[0] not in "CZ":
        return char
    return char.encode("unicode_escape").decode()
