"""The hosts of the paper's evaluation: one model, which all of its figures share.  Pure.

From the paper: Figure 6(c) has the hosts of each grid and its part of the throughput; section 7 has
115 CPU years in 15 days.  So it follows how many CPUs of a grid were at work at once.  How long a
host stays in its grid, how fast it is and how often it fails is that of a kind of hosts
(`gridbot_simulator.world.presets`, with their sources).  For how long a host of a grid is away then
follows: as long as it takes for that many to be at work.

Assumed: Madison and OSG lend idle desktops and nodes; EGEE and Technion have nodes of clusters.
Hosts of the first three are away for exponential times.  Technion's cluster is the paper's
dedicated one: its nodes are away as those of the trace are.  Of the volunteers each second machine
has two cores, without which they could not have done their part.  Grids without a name, which did
the last 2 % of the work, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gridbot_simulator.world.chance import stream
from gridbot_simulator.world.client import SimulatedHost
from gridbot_simulator.world.hosts import HostModel, Stays
from gridbot_simulator.world.presets import PRESETS

COMMUNITY = "Superlink@Technion"  # the one that is no grid of its hosts' ads
CPUS_AT_WORK = 115 * 365.25 / 15


@dataclass(frozen=True, slots=True)
class Grid:
    """Hosts of a kind."""

    name: str
    hosts: int
    model: HostModel

    @property
    def cpus_at_work(self) -> float:
        """CPUs that compute at once, in the mean, while there is enough to do."""
        up, down = self.model.up.mean_seconds, self.model.down.mean_seconds
        return self.hosts * self.model.cpus * self.model.mean_part * up / (up + down)


def _opportunistic(name: str, kind: str, hosts: int, share: float) -> Grid:
    """A grid whose hosts are ours for so much of the time that it has this part of all work."""
    model = PRESETS[kind]
    present = share * CPUS_AT_WORK / hosts
    away = model.up.mean_seconds * (1 / present - 1)
    return Grid(name, hosts, replace(model, grid=name, down=Stays.of_mean(away, shape=1.0)))


GRIDS: Sequence[Grid] = (
    _opportunistic("Madison", "campus", 1113, 0.20),
    _opportunistic("OSG", "campus", 1601, 0.10),
    _opportunistic("EGEE", "collaborative", 2895, 0.16),
    Grid("Technion", 121, replace(PRESETS["collaborative"], grid="Technion")),
    Grid(COMMUNITY, 2034, PRESETS["community"]),
    Grid(COMMUNITY, 2033, replace(PRESETS["community"], cpus=2)),
)
COLLABORATIVE = ("Madison", "OSG", "EGEE", "Technion")


def hosts(names: Iterable[str], scale: float, seed: int) -> list[SimulatedHost]:
    """Draw the hosts of grids, or a part of them; at least one of each kind.

    The same seed gives the same host, whichever other grids are drawn.
    """
    wanted, found = set(names), list[SimulatedHost]()
    for kind, grid in enumerate(GRIDS):
        if grid.name in wanted:
            chance = stream(seed, "traits", kind)
            for place in range(1, max(1, round(scale * grid.hosts)) + 1):
                name, traits = f"{grid.name}-{kind}-{place}", grid.model.draw(chance)
                found.append(SimulatedHost(len(found) + 1, name, grid.model, traits))
    return found
