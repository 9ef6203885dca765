"""What a valid replica earns: the time that a job of its BOT takes the typical host.

Nothing that a client says enters: no benchmark, no CPU time.  The server's own clock measures how
long each valid replica took, from sending to report.  Each host's pace tells how its times compare
with those of others on the same BOTs, so that slow hosts, deep queues and late reports count as
what they are; what is left is a property of the BOT.  Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

# BOINC's unit is the cobblestone: 200 of them are a day of a machine of one GFLOPS.  That machine
# is, here, a core of the typical host.
CREDIT_PER_SECOND = 200 / 86_400

TYPICAL_PACE = 1.0
_LEAST_SECONDS = 0.1
# Which part of the distance to what a vote says is gone there, once there were many.
_GAIN = 0.02
_PACE_GAIN = 0.1
# The same for the distance of a pace to the typical one: this ties all paces to 1.
_PACE_PULL = 0.003


@dataclass(frozen=True, slots=True)
class Worth:
    """What is known of the jobs of one BOT."""

    cpus: int  # that a replica occupies
    limit_seconds: float  # that a replica may run, as the BOT's owner declared
    seconds: float | None = None  # that one takes the typical host; None before any was valid
    votes: int = 0  # that this was learnt from

    @property
    def credit(self) -> float:
        """What each valid replica of a job earns; never more than `limit_seconds` are worth."""
        return CREDIT_PER_SECOND * self.cpus * (self.seconds or 0.0)


def vote(worth: Worth, pace: float, seconds: float) -> tuple[Worth, float]:
    """Learn from a host whose valid replicas took so long; return the worth and the host's pace.

    However long it took, one vote of many moves either by a few per cent.
    """
    seconds = max(seconds, _LEAST_SECONDS)
    heard = min(seconds / pace, worth.limit_seconds)
    known = heard if worth.seconds is None else worth.seconds
    gain = max(_GAIN, 2 / (2 + worth.votes))
    learnt = _toward(known, heard, gain)
    # As long as the worth is uncertain, it says little of the host.
    pace = _toward(pace, seconds / learnt, _PACE_GAIN * (1 - gain))
    pace = _toward(pace, TYPICAL_PACE, _PACE_PULL)
    return replace(worth, seconds=learnt, votes=worth.votes + 1), pace


def _toward(known: float, heard: float, gain: float) -> float:
    """Move on a logarithmic scale, where twice as long weighs as much as half as long.

    What is farther away than a factor of e weighs no more than that.
    """
    distance = math.log(heard / known)
    return known * math.exp(gain * min(max(distance, -1.0), 1.0))
