"""How many calls make one job.  Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

CHUNK_SECONDS = 1.0  # of work in one job, if there is enough of it
MOST_CALLS = 10_000  # in one job
_PROBES = 4  # calls of a function that are sent at first
_LEAST_SECONDS = 0.1  # of work in one job, rather than to share it among more hosts
_SHORTEST_SECONDS = 1e-7  # no call takes less
_FOLLOWING = 0.3  # share by which an estimate follows a new chunk


def sizes(waiting: int, seconds: float | None, sharers: int, room: int) -> list[int]:
    """Numbers of calls in the next chunks, of `waiting` calls of one function.

    `seconds` is what a call takes; None before the first one ended: then single calls are sent, as
    many as there is `room` for, and the others wait.  Work for less than a second in each chunk is
    shared among `sharers`.
    """
    if seconds is None:
        return [1] * max(0, min(waiting, room))
    each = max(seconds, _SHORTEST_SECONDS)
    share = min(CHUNK_SECONDS, max(_LEAST_SECONDS, waiting * each / sharers))
    size = min(MOST_CALLS, max(1, math.ceil(share / each - 1e-9)))
    whole, rest = divmod(waiting, size)
    return [size] * whole + ([rest] if rest else [])


def estimate(before: float | None, seconds: Sequence[float]) -> float:
    """What a call takes, by an earlier estimate and the calls of a chunk that ended."""
    mean = sum(seconds) / len(seconds)
    return mean if before is None else before + _FOLLOWING * (mean - before)


def probes(waited: float) -> int:
    """How many single calls may be out before any has ended, `waited` seconds after the first.

    They may be long, and then many are to run beside each other; or hosts are slow, and then they
    would be too many jobs.  So the number doubles with each second.
    """
    return min(MOST_CALLS, _PROBES << min(int(waited), 30))
