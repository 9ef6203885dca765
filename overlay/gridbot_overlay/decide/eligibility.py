"""Which grids may serve a BOT, and why others may not.  Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from gridbot.printing import counted
from gridbot_client.pilot.behaviour import LEAVING_SECONDS
from gridbot_overlay.decide.model import BotDemand, Grid
from gridbot_policies.classad import ParseError, Record, record
from gridbot_policies.policy.ads import Ads
from gridbot_policies.policy.policy_set import PolicySet, SemanticError

_MOST_HOSTS = 5  # measured ads of a grid that a policy is tried on


class BotEligibility:
    """One BOT that looks for grids: its policies and its ad, read once for all grids."""

    def __init__(self, demand: BotDemand, queue: Record) -> None:
        self.demand = demand
        self._queue = queue
        self._bot = record(demand.ad)
        self._policies = _policies(demand.policy)

    def obstacle(self, grid: Grid, ad: Record, hosts: Sequence[Record], now: float) -> str:
        """Return why the grid cannot serve the BOT, "" when it can.

        `hosts` are the ads that pilots of the grid had lately; without any, they are taken to
        suit.
        """
        if not _serves(grid, self.demand):
            return (
                f'the grid does not serve {self.demand.owner}; to allow it, add the name, or "*"'
                " for all users, to `owners` of the grid"
            )
        if slots_per_pilot(self.demand, grid) < 1:
            return _too_small(self.demand, grid)
        if why := _outlives(self.demand, grid):
            return why
        if isinstance(self._policies, str):
            return self._policies
        if not self._policies.accepts_grid(ad, self._bot, self._queue, now):
            return "its GridPolicy excludes the grid"
        if hosts and not any(self._suits(host, now) for host in hosts[:_MOST_HOSTS]):
            return "its JobRequirements exclude the hosts of the last pilots there"
        return ""

    def rank(self, host: Record, now: float) -> float:
        """Return what the BOT's Rank gives for such a host."""
        if isinstance(self._policies, str):
            return 0.0
        return self._policies.rank(Ads(host, self._bot, self._queue, now=now))

    def _suits(self, host: Record, now: float) -> bool:
        assert isinstance(self._policies, PolicySet)
        return self._policies.requirements(Ads(host, self._bot, self._queue, now=now))


def _serves(grid: Grid, demand: BotDemand) -> bool:
    """A pilot runs what its owners submit as the operator, so that he says who they may be."""
    return demand.is_operator or demand.owner in grid.owners or "*" in grid.owners


def _outlives(demand: BotDemand, grid: Grid) -> str:
    """Say that a replica would outlive a pilot of the grid; "" if it would not."""
    walltime = grid.shape.walltime_seconds
    if (demand.run_seconds or 0) <= walltime - LEAVING_SECONDS:
        return ""
    needed = f"takes {demand.run_seconds:.0f} s"
    if demand.cut_off_seconds is not None:
        needed = f"needs more than {demand.cut_off_seconds:.0f} s"
    return (
        f"a replica {needed}; {grid.name} gives a pilot {walltime} s, of which it leaves"
        f" {LEAVING_SECONDS:.0f} for its end"
    )


def _too_small(demand: BotDemand, grid: Grid) -> str:
    shape, has_gpus = grid.shape, demand.gpus or grid.shape.gpus
    needed, had = (
        f"{demand.cpus} CPUs and {demand.memory_mb} MB",
        f"{shape.cpus} and {shape.memory_mb}",
    )
    if shape.nodes > 1:
        had += f" on each of {shape.nodes} nodes"
    if has_gpus:
        needed, had = f"{counted(demand.gpus, 'GPU')}, {needed}", f"{shape.gpus}, {had}"
    return f"a replica needs {needed}, a pilot has {had}"


def slots_per_pilot(demand: BotDemand, grid: Grid) -> int:
    """Return how many replicas one pilot of the grid holds at once.

    One that is larger than a node has nodes for itself.
    """
    shape, cpus, memory_mb = grid.shape, max(1, demand.cpus), demand.memory_mb
    by_memory = shape.memory_mb // memory_mb if memory_mb else shape.cpus
    by_gpus = shape.gpus // demand.gpus if demand.gpus else shape.cpus
    if a_node_holds := min(shape.cpus // cpus, by_memory, by_gpus):
        return shape.nodes * a_node_holds
    if by_gpus == 0:
        return 0
    return shape.nodes // max(math.ceil(cpus / shape.cpus), math.ceil(memory_mb / shape.memory_mb))


def new_pilots_host(host: Mapping[str, Any], grid: Grid) -> Record:
    """Return the ad that the next pilot on such a host would have."""
    fresh = {
        "Grid": grid.name,
        "IsPilot": True,
        "IsDedicated": grid.is_dedicated,
        "Running": 0,
        "TimeLeft": grid.shape.walltime_seconds,
    }
    return record(dict(_overlaid(host, fresh)))


def _overlaid(host: Mapping[str, Any], fresh: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    replaced = {name.lower() for name in fresh}
    yield from ((name, value) for name, value in host.items() if name.lower() not in replaced)
    yield from fresh.items()


# The same few texts come at every look; a text that many BOTs share is read once.
@lru_cache(maxsize=4096)
def _policies(text: str) -> PolicySet | str:
    try:
        return PolicySet.parse(text)
    except (ParseError, SemanticError) as error:
        return f"its policy cannot be read: {error}"
