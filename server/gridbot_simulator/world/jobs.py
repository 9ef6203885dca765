"""How long jobs take on a reference host.  Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Workload:
    """The jobs of a BOT, by their numbers: seconds on a host with speed 1."""

    seconds: Sequence[float]

    @classmethod
    def between(cls, jobs: int, low: float, high: float, chance: random.Random) -> Workload:
        """Jobs whose times are spread evenly from one to another."""
        return cls([chance.uniform(low, high) for _ in range(jobs)])

    @property
    def median(self) -> float:
        """Half of the jobs take no longer."""
        return sorted(self.seconds)[len(self.seconds) // 2]
