"""Matches what BOTs want to the pilots that live and to those that could be added.  Pure.

The unit is a processor core.  What runs stays where it is: only what waits to be sent is matched,
first to cores of pilots that live, then to new ones.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gridbot_overlay.decide.assign import Claim, Pool, assign
from gridbot_overlay.decide.eligibility import slots_per_pilot
from gridbot_overlay.decide.model import BotDemand, Grid, Pilot, PilotState

# Starting a pilot costs its grid and us about a minute: work that is shorter waits for a core.
AMORTISATION_SECONDS = 60.0
MOST_OWNERS = 20  # that one pilot serves
_RUNNING_COST, _WAITING_COST = 0, 1


class Need(NamedTuple):
    """What a BOT has to send: what any grid may run, or what only dedicated ones may."""

    bot: int
    dedicated: bool


class Lot(NamedTuple):
    """Pilots of a grid that are as good as each other; `state` None is those to be added."""

    grid: str
    state: PilotState | None
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Supply:
    """What a grid has to offer: pilots that live, and room for new ones at a cost."""

    grid: Grid
    live: Sequence[Pilot]
    most_new: int
    cost: int


@dataclass(frozen=True, slots=True)
class Matched:
    """What is used of each lot, in cores, and what was left over."""

    used: Mapping[Lot, int]
    owners: Mapping[str, tuple[str, ...]]  # by grid: whom new pilots should serve
    unmet: Mapping[Need, int]  # cores for which there was no room

    def pilots(self, lot: Lot, grid: Grid) -> int:
        """Return how many pilots of the lot are needed."""
        return math.ceil(self.used.get(lot, 0) / grid.shape.all_cpus)


def match(
    demands: Sequence[BotDemand],
    eligible: Mapping[Need, frozenset[str]],
    ranks: Mapping[int, float],
    offers: Sequence[Supply],
) -> Matched:
    """Match BOTs to grids; `eligible` are the grids that may serve each need."""
    grids = {offer.grid.name: offer.grid for offer in offers}
    lots = Counter(dict(_lots(offers)))
    costs = {offer.grid.name: offer.cost for offer in offers}
    held, claims = Counter[str](), list[Claim[Need, Lot]]()
    wanted = list(_wanted(demands, eligible, grids, lots, held))
    for demand, need, cores in wanted:
        able = frozenset(lot for lot in lots if _serves(lot, demand.owner, eligible[need]))
        claims.append(Claim(need, demand.owner, cores, able, ranks[demand.bot]))
    pools = [Pool(lot, cores, _cost(lot, costs)) for lot, cores in lots.items()]
    assigned = assign(claims, pools, {item.owner: item.share for item in demands}, held)
    used, met, served = Counter[Lot](), Counter[Need](), defaultdict[str, Counter[str]](Counter)
    owner_of = {need: demand.owner for demand, need, _ in wanted}
    for (need, lot), cores in assigned.items():
        used[lot] += cores
        met[need] += cores
        if lot.state is None:
            served[lot.grid][owner_of[need]] += cores
    unmet = {need: cores - met[need] for _, need, cores in wanted if cores > met[need]}
    owners = {name: _owners(name, served[name], wanted, eligible) for name in grids}
    return Matched(used, owners, unmet)


def replicas_wanted(demand: BotDemand, pinned: int) -> int:
    """Return for how many of its unsent replicas the BOT should get slots.

    `pinned` of its replicas run on pilots.  Short jobs share slots: a slot should have work for
    AMORTISATION_SECONDS at least.
    """
    total = demand.unsent + sum(demand.on_pilots.values())
    slots = total
    if demand.seconds is not None:
        slots = min(total, max(1, math.ceil(total * demand.seconds / AMORTISATION_SECONDS)))
    return min(demand.unsent, max(0, slots - pinned))


def _lots(offers: Iterable[Supply]) -> Iterator[tuple[Lot, int]]:
    """Yield lots and their cores.  What is held does not start, so it is nobody's supply."""
    for offer in offers:
        cores = Counter[Lot]()
        for pilot in offer.live:
            if pilot.state is PilotState.RUNNING:
                cores[Lot(offer.grid.name, PilotState.RUNNING, pilot.owners)] += pilot.cpus
            elif pilot.state is not PilotState.HELD and not pilot.cancelled:
                cores[Lot(offer.grid.name, PilotState.QUEUED, pilot.owners)] += pilot.cpus
        yield from cores.items()
        yield Lot(offer.grid.name, None), offer.most_new * offer.grid.shape.all_cpus


def _wanted(
    demands: Iterable[BotDemand],
    eligible: Mapping[Need, frozenset[str]],
    grids: Mapping[str, Grid],
    lots: Counter[Lot],
    held: Counter[str],
) -> Iterator[tuple[BotDemand, Need, int]]:
    """Yield the cores that each need still wants; takes those in use from `lots`."""
    for demand in demands:
        both = [Need(demand.bot, dedicated=False), Need(demand.bot, dedicated=True)]
        each = _cores_each(demand, [grids[name] for need in both for name in eligible[need]])
        in_use = sum(_pin(demand, name, each, lots) for name in demand.on_pilots)
        held[demand.owner] += in_use
        replicas = replicas_wanted(demand, math.ceil(in_use / each))
        dedicated = min(demand.dedicated, replicas)
        for need, count in zip(both, (replicas - dedicated, dedicated), strict=True):
            if count and eligible[need]:
                yield demand, need, count * each


def _cores_each(demand: BotDemand, grids: Iterable[Grid]) -> int:
    """Return the cores that a replica takes, more than it asks for where memory is short."""
    taken = (math.ceil(grid.shape.all_cpus / slots_per_pilot(demand, grid)) for grid in grids)
    return min(taken, default=max(1, demand.cpus))


def _pin(demand: BotDemand, grid: str, each: int, lots: Counter[Lot]) -> int:
    """Take the cores in use out of the running lots that may run them; return how many.

    Replicas beyond these wait on a pilot for its core.
    """
    wanted = demand.on_pilots[grid] * each
    able = [
        lot
        for lot in lots
        if lot.grid == grid and lot.state is PilotState.RUNNING and demand.owner in lot.owners
    ]
    pinned = 0
    # Those that serve few owners first: the others can still serve more.
    for lot in sorted(able, key=lambda lot: len(lot.owners)):
        taken = min(wanted - pinned, lots[lot])
        lots[lot] -= taken
        pinned += taken
    return pinned


def _serves(lot: Lot, owner: str, grids: frozenset[str]) -> bool:
    return lot.grid in grids and (lot.state is None or owner in lot.owners)


def _cost(lot: Lot, costs: Mapping[str, int]) -> int:
    if lot.state is None:
        return costs[lot.grid]
    return _RUNNING_COST if lot.state is PilotState.RUNNING else _WAITING_COST


def _owners(
    grid: str,
    served: Counter[str],
    wanted: Iterable[tuple[BotDemand, Need, int]],
    eligible: Mapping[Need, frozenset[str]],
) -> tuple[str, ...]:
    """Return the owners that the grid may serve, those with most slots there first."""
    able = {demand.owner for demand, need, _ in wanted if grid in eligible[need]}
    return tuple(sorted(able, key=lambda owner: (-served[owner], owner))[:MOST_OWNERS])
