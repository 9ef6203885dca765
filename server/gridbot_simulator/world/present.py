"""What a server knows of a BOT that runs, and what can be learnt from it.  Pure.

What the server does not know is assumed, and `ASSUMPTIONS` says what.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import Any

from gridbot_client.protocol.manifest import Manifest
from gridbot_server.matching.ads import host_attributes
from gridbot_server.matching.hosts import HostClient
from gridbot_server.matching.requirements import ManifestWork, is_stock, lacks, number
from gridbot_simulator.world.hosts import HostModel, HostTraits, Stays

Row = Mapping[str, Any]

LEAST_RUNS = 3  # answers, below which nobody knows how long jobs take
_HOUR = 3600.0
_LEAST_SPEED, _MOST_SPEED = 0.05, 20.0
_SPEED_RUNS = 1  # answers that count as much for a host's speed as that of all others
_RATE_RUNS = 20  # and for the rate of its failures
_NEW_RATE = 0.1  # error rate of a host of which the server knows nothing
_AWAY_SECONDS = {True: 600.0, False: _HOUR}  # of a pilot's place, of a machine; if nothing is known
# Of the Weibull distribution of stays: Failure Trace Archive, desktops and nodes of clusters.
_SHAPE = 0.5
_ASSUMED_STAY = 24 * _HOUR
_PARETO = 2.0

ASSUMPTIONS = (
    "jobs take as long as those that ended lately did, and each host is as fast as it was",
    "hosts stay, leave and come back as they did in the last month; no further ones come",
    "hosts hold the inputs that they hold now",
    "other BOTs of which jobs are sent go on as they are, and no further ones are submitted;"
    " replicas of held BOTs, and jobs that run together, take no room",
    "a replica that has run longer than any that ended goes on for 40 % of its age, in the median",
)
"""What a prediction rests on, in words."""


class Present:
    """A snapshot (`gridbot_server.bots.snapshot`), and what follows from it."""

    def __init__(self, snapshot: Row) -> None:
        self.bot: Row = snapshot["bot"]
        self.rows: Mapping[str, Sequence[Row]] = snapshot
        self.now = float(self.bot["now"])
        self.manifest = Manifest.from_text(self.bot["manifest"])

    # ------------------------------------------------------------------------------- jobs

    @cached_property
    def begun(self) -> Sequence[int]:
        """The numbers of the jobs that are left and were begun."""
        rows = (self.rows["leases"], self.rows["copies"], self.rows["pending"])
        return sorted({item["seq"] for items in rows for item in items})

    @cached_property
    def fresh(self) -> int:
        """How many jobs were never sent."""
        left = self.bot["size"] - self.bot["done"] - self.bot["failed"] - len(self.begun)
        return max(0, min(int(left), int(self.bot["size"] - self.bot["sent_first"])))

    @property
    def left(self) -> int:
        """How many jobs are left."""
        return len(self.begun) + self.fresh

    # ------------------------------------------------------------------------------ hosts

    @cached_property
    def clients(self) -> Sequence[Row]:
        """The latest client of each host."""
        latest: dict[int, Row] = {}
        for client in self.rows["clients"]:  # the latest first
            latest.setdefault(client["host"], client)
        return list(latest.values())

    @cached_property
    def fitting(self) -> set[int]:
        """The hosts that can run it, policies excepted."""
        bot = self.bot
        need = ManifestWork(
            manifest=self.manifest,
            owner=bot["owner"],
            signed=bot["signed"],
            owner_signed=bot["owner_signed"],
            has_storage=bot["has_storage"],
        )
        return {
            client["host"] for client in self.clients if not any(lacks(_candidate(client), need))
        }

    @property
    def stock_hosts(self) -> int:
        """How many hosts run stock BOINC clients."""
        return sum(is_stock(client["ad"]) and not client["is_away"] for client in self.clients)

    def model(self, client: Row) -> HostModel:
        """How a host comes and goes, and what it has."""
        ad, grid = client["ad"], client["grid"]
        up, down = self._stays[grid or ""]
        return HostModel(
            up=Stays.of_mean(up, _SHAPE),
            down=Stays.of_mean(down, _SHAPE),
            grid=grid,
            cpus=max(1, int(number(ad.get("NumCpus")) or 1)),
            memory_mb=max(1, int(number(ad.get("Memory")) or 1 << 30)),
            gpus=max(0, int(number(ad.get("NumGpus")) or 0)),
            keeps_work=grid is None,
        )

    @cached_property
    def _stays(self) -> Mapping[str, tuple[float, float]]:
        """Mean seconds that machines of a grid stay, and are away."""
        ended = {item["grid"]: item for item in self.rows["sessions"]}
        going_on: defaultdict[str, float] = defaultdict(float)
        for client in self.clients:
            since = client["session_at"]
            going_on[client["grid"] or ""] += max(0.0, self.now - since) if since else 0.0
        found = {}
        for grid in {*ended, *going_on}:
            over = ended.get(grid, {"ended": 0, "stayed_seconds": 0.0, "away_seconds": None})
            # Of exponential times, of which some are not over; and of one more, which is assumed.
            observed = over["stayed_seconds"] + going_on[grid] + _ASSUMED_STAY
            usual = over["away_seconds"] or _AWAY_SECONDS[bool(grid)]
            found[grid] = observed / (over["ended"] + 1), usual
        return found

    def traits(self, client: Row, chance: random.Random) -> HostTraits:
        """How fast a host is, and how often it fails; one that is not known is like another."""
        speed = self.speeds.get(client["host"])
        return HostTraits(
            speed=self._new_speed(client["id"], chance) if speed is None else speed,
            part=1.0,
            failure_rate=self._failure_rate(client),
        )

    def _new_speed(self, client: int, chance: random.Random) -> float:
        """Draw the speed of a host without an answer: so slow that it may still have none."""
        age, usual = self._ages.get(client, 0.0), median(self.run_seconds)
        slow = [speed for speed in sorted(self.speeds.values()) if usual / speed > age]
        return chance.choice(slow) if slow else usual / straggler_seconds(age, chance)

    @cached_property
    def began_at(self) -> Mapping[tuple[int, int], float]:
        """When replicas in progress began, by job and number; those that wait on a client did not.

        One that was held ahead began when the host had room: with the last answers of the host.
        """
        ends: defaultdict[int, list[float]] = defaultdict(list)
        for run in self.rows["runs"]:
            ends[run["host"]].append(run["ended_at"])
        held: defaultdict[int, list[Row]] = defaultdict(list)
        for lease in self.rows["leases"]:  # the earliest first
            held[lease["client"]].append(lease)
        found = {}
        for client in self.clients:
            places = max(1, self.model(client).cpus // self.manifest.resources.cpus)
            freed = sorted(ends[client["host"]])[-places:]
            # A host may say that it has any number of CPUs.
            unused = min(places - len(freed), len(held[client["id"]]))
            freed = [0.0] * unused + freed
            for lease, free_at in zip(held[client["id"]], freed, strict=False):
                began = min(self.now, max(lease["sent_at"], free_at))
                found[lease["seq"], lease["replica"]] = began
        return found

    @cached_property
    def _ages(self) -> Mapping[int, float]:
        """Seconds that the oldest replicas of clients have run."""
        found: dict[int, float] = {}
        for lease in self.rows["leases"]:
            began_at = self.began_at.get((lease["seq"], lease["replica"]), self.now)
            found[lease["client"]] = max(self.now - began_at, found.get(lease["client"], 0.0))
        return found

    def _failure_rate(self, client: Row) -> float:
        runs = len(self._seconds_by_host.get(client["host"], ()))
        told = float(client["error_rate"])
        if told > _NEW_RATE:
            return min(1.0, told)
        weight = runs / (runs + _RATE_RUNS)
        return weight * told + (1 - weight) * self._usual_failure_rate

    @cached_property
    def _usual_failure_rate(self) -> float:
        failed = self.bot["sent_after_errors"]
        return float(failed / max(1, failed + self.bot["done"]))

    # -------------------------------------------------------------------------- run times

    @cached_property
    def _seconds_by_host(self) -> Mapping[int, Sequence[float]]:
        found: defaultdict[int, list[float]] = defaultdict(list)
        for run in self.rows["runs"]:
            found[run["host"]].append(run["seconds"])
        return found

    @cached_property
    def speeds(self) -> Mapping[int, float]:
        """Speeds of the hosts that gave answers; 1 is the usual one."""
        usual = median(run["seconds"] for run in self.rows["runs"])
        found = {}
        for host, seconds in self._seconds_by_host.items():
            weight = len(seconds) / (len(seconds) + _SPEED_RUNS)
            speed = (usual / median(seconds)) ** weight
            found[host] = min(_MOST_SPEED, max(_LEAST_SPEED, speed))
        return found

    @cached_property
    def run_seconds(self) -> Sequence[float]:
        """Seconds that jobs took, as on a host of speed 1, the least first."""
        return sorted(run["seconds"] * self.speeds[run["host"]] for run in self.rows["runs"])

    def draw_seconds(self, chance: random.Random, more_than: float = 0.0) -> float:
        """Draw the seconds of a job that has run for some time; of any job if none took longer."""
        longer = [seconds for seconds in self.run_seconds if seconds > more_than]
        return chance.choice(longer or self.run_seconds)

    def why_not(self) -> str:
        """Say why nothing can be predicted; "" if it can."""
        if len(self.rows["runs"]) < LEAST_RUNS:
            return (
                f"{len(self.rows['runs'])} of its jobs have ended with an answer: how long jobs"
                f" take is known from {LEAST_RUNS} on"
            )
        there = {client["host"] for client in self.clients if not client["is_away"]}
        if not self.fitting & there:
            return (
                "no host that is there now can run it; why, says:"
                f" gridbot bot explain {self.bot['id']}"
            )
        return ""


def straggler_seconds(age: float, chance: random.Random) -> float:
    """Draw how long a replica runs in all that has run longer than any that ended.

    By a Pareto distribution: what has taken long, takes long.
    """
    return age * chance.paretovariate(_PARETO)


def _candidate(client: Row) -> HostClient:
    known = {"Grid": client["grid"], "IsPilot": client["grid"] is not None}
    return HostClient(
        client["host"], host_attributes(client["ad"], known, running=0), client["owner"],
        client["accepts"], client["trusts"], client["protocol"],
    )  # fmt: skip
