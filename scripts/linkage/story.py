"""The lines that the demo prints: a word and what happened."""

from __future__ import annotations

import sys

_CLEAR = "\r\x1b[K"


def say(topic: str, text: str) -> None:
    """Print one line of the story."""
    start = _CLEAR if sys.stdout.isatty() else ""
    print(f"{start}  {topic:<9} {text}", flush=True)


def progress(done: int, total: int) -> None:
    """On a terminal, show how far the BOT is, in a line that the next one replaces."""
    if sys.stdout.isatty():
        bar = "#" * (30 * done // total)
        print(f"{_CLEAR}  progress  [{bar:<30}] {done} of {total} jobs", end="", flush=True)
