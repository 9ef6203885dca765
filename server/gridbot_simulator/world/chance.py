"""Streams of random numbers: what one of them is asked moves no other."""

from __future__ import annotations

import random


def stream(seed: int, *what: object) -> random.Random:
    """Return the stream of something under a seed; the same in each process and version."""
    return random.Random(" ".join(map(str, (seed, *what))))  # noqa: S311  # guards nothing
