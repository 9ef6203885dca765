"""The first place where two answers differ, for the one who asks why an answer lost."""

from __future__ import annotations

from dataclasses import dataclass

SHOWN = 80  # characters of a value


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two answers differ, what each has there, and the rule that this breaks."""

    place: str  # "result.txt, line 3"
    one: str
    other: str
    rule: str  # "not near: rel=1e-06, abs=0"


def excerpt(content: bytes) -> str:
    """Characters of a value that are fit to be shown, the first SHOWN of them."""
    text = content[: SHOWN + 1].decode("utf-8", "backslashreplace")
    safe = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return safe if len(content) <= SHOWN and len(safe) <= SHOWN else f"{safe[:SHOWN]}…"
