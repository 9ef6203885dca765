"""Models of hosts: how long they stay, how fast they are, how often they fail.  Pure."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Literal

_HOUR = 3600.0
_SETTLED_HOURS = 14 * 24.0  # a host has come and gone for so long when a simulation begins
_LEAST_SPEED = 0.05
_SPREAD = 4.0  # of the beta distribution: small numbers lie at its ends


@dataclass(frozen=True, slots=True)
class Stays:
    """How long hosts stay in a state: a Weibull distribution; with shape 1 it is exponential.

    With a shape below 1, who has stayed for long stays for long.
    """

    shape: float
    hours: float  # the scale

    def seconds(self, chance: random.Random) -> float:
        """Draw one."""
        return chance.weibullvariate(self.hours, self.shape) * _HOUR

    def more_seconds(self, stayed: float, chance: random.Random) -> float:
        """Draw how many more seconds one stays who has stayed for some seconds."""
        scale = self.hours * _HOUR
        hazard = (stayed / scale) ** self.shape + chance.expovariate(1.0)
        return float(scale * hazard ** (1 / self.shape) - stayed)

    @classmethod
    def of_mean(cls, seconds: float, shape: float) -> Stays:
        """Stays of a mean length."""
        return cls(shape, seconds / math.gamma(1 + 1 / shape) / _HOUR)

    @property
    def mean_seconds(self) -> float:
        """The mean."""
        return self.hours * math.gamma(1 + 1 / self.shape) * _HOUR


@dataclass(frozen=True, slots=True)
class HostModel:
    """A kind of hosts."""

    up: Stays
    down: Stays
    grid: str | None = None
    cpus: int = 1
    memory_mb: int = 8192
    gpus: int = 0
    speeds: Literal["lognormal", "exponential"] = "lognormal"
    speed_sigma: float = 0.25
    mean_part: float = 1.0  # of the time that a replica is there, for which it is executed
    least_part: float = 1.0
    faulty_hosts: float = 0.04  # share
    faulty_rate: float = 0.4  # of replicas that fail on such a host
    usual_rate: float = 0.001  # on any other
    keeps_work: bool = False  # a host that goes continues where it was; else the work is lost

    def draw(self, chance: random.Random) -> HostTraits:
        """Draw a host."""
        is_faulty = chance.random() < self.faulty_hosts
        return HostTraits(
            speed=self._speed(chance),
            part=self._part(chance),
            failure_rate=self.faulty_rate if is_faulty else self.usual_rate,
        )

    def _speed(self, chance: random.Random) -> float:
        if self.speeds == "exponential":
            return max(_LEAST_SPEED, chance.expovariate(1.0))
        return chance.lognormvariate(0.0, self.speed_sigma)

    def _part(self, chance: random.Random) -> float:
        if self.mean_part >= 1.0:
            return 1.0
        mean = (self.mean_part - self.least_part) / (1 - self.least_part)
        drawn = chance.betavariate(_SPREAD * mean, _SPREAD * (1 - mean))
        return self.least_part + (1 - self.least_part) * drawn

    def begin(self, chance: random.Random) -> tuple[bool, float]:
        """Return whether a host is there when a simulation begins, and for how long that lasts.

        It has come and gone for two weeks before, so that some have been there for long.
        """
        at, is_up = -_SETTLED_HOURS * _HOUR, True
        while True:
            at += (self.up if is_up else self.down).seconds(chance)
            if at > 0:
                return is_up, at
            is_up = not is_up


@dataclass(frozen=True, slots=True)
class HostTraits:
    """What is true of one host, as against what the server knows of it."""

    speed: float  # of a reference host
    part: float  # of the time that a replica is there, for which it is executed
    failure_rate: float

    def past_error_rate(self, chance: random.Random, lost: float, results: int) -> float:
        """Return the server's moving average after so many results, some of which were lost.

        It begins at 0.1 and keeps 95 of 100 with each result (`sql/cycles.sql: rate_hosts`).
        """
        rate, bad = 0.1, 1 - (1 - self.failure_rate) * (1 - lost)
        for _ in range(results):
            rate = 0.95 * rate + (0.05 if chance.random() < bad else 0.0)
        return max(1e-6, rate)
