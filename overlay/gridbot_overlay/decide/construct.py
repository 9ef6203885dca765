"""The decision: demand by BOT, grids, pilots now -> pilots to submit and to take back.

Pure: the same arguments give the same plan, and planning again after it was carried out gives an
empty one.  Both constraints of paper section 5 are kept: limits per grid, and no pilot that idles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gridbot.printing import counted
from gridbot_overlay.decide.assign import EXACT_OWNERS
from gridbot_overlay.decide.eligibility import BotEligibility, new_pilots_host
from gridbot_overlay.decide.grid_ad import grid_ad, queue_wait
from gridbot_overlay.decide.health import WHY_HELD, GridHealth
from gridbot_overlay.decide.limits import Allowance, room
from gridbot_overlay.decide.matching import Lot, Matched, Need, Supply, match
from gridbot_overlay.decide.model import BotDemand, Grid, Pilot, PilotState
from gridbot_overlay.decide.money import MoneySpent, exhausted
from gridbot_policies.classad import Record, record

SURPLUS_CYCLES = 3  # looks in a row at which a waiting pilot was not needed, before it goes
HELD_SECONDS = 120.0  # a held pilot is given so long to be released
OVERDUE_SECONDS = 300.0  # beyond its walltime; batch systems end what runs in time themselves
OUTLIVED = "its walltime is over"
_MOST_NAMED = 5  # BOTs in one note

Obstacles = Mapping[tuple[Need, str], str]
"""By need and grid: why the grid cannot serve it; those that can are not in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridView:
    """One grid as it is planned for."""

    grid: Grid
    pilots: Sequence[Pilot] = ()  # of the last hours
    hosts: Sequence[Mapping[str, Any]] = ()  # ads of its last pilots' hosts, the latest first
    health: GridHealth = field(default_factory=GridHealth)
    used_hours: float = 0.0  # pilot-hours of pilots that have ended
    wasted_hours: float = 0.0  # of those of the last days: in which their cores ran nothing
    money: MoneySpent = field(default_factory=MoneySpent)  # of the current period of its budget
    barrier: str = ""  # why nothing may be submitted, whatever the demand
    is_drained: bool = False  # waiting pilots go at once

    @property
    def live(self) -> list[Pilot]:
        """The pilots that the batch system has."""
        return [pilot for pilot in self.pilots if pilot.is_live]

    @property
    def ad(self) -> dict[str, Any]:
        """What a GridPolicy sees."""
        rate = self.health.failure_rate
        return grid_ad(
            self.grid, self.pilots, rate, self.used_hours, self.wasted_hours, self.hosts, self.money
        )


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit `count` pilots that serve `owners`."""

    grid: str
    count: int
    owners: tuple[str, ...]
    excluded_nodes: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Take pilots back: those that wait, and those that outlived their walltime."""

    grid: str
    pilots: tuple[Pilot, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, and why no more."""

    submits: tuple[Submit, ...] = ()
    cancels: tuple[Cancel, ...] = ()
    surplus: frozenset[str] = frozenset()  # waiting pilots that nothing needs now, by id
    notes: Mapping[str, str] = field(default_factory=dict)  # by grid: why no more is submitted
    unserved: Mapping[int, str] = field(default_factory=dict)  # by BOT: why no grid serves it
    # By BOT with unsent replicas, and by grid: why that grid does not serve it.
    refusals: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


def plan(
    demands: Sequence[BotDemand], views: Sequence[GridView], queue: Mapping[str, Any], now: float
) -> Plan:
    """Decide what to submit and what to take back.  Changes nothing."""
    obstacles, ranks = _suited(demands, views, queue, now)
    names = frozenset(view.grid.name for view in views)
    eligible = {
        need: frozenset(name for name in names if (need, name) not in obstacles)
        for demand in demands
        for need in _needs(demand)
    }
    rooms = {view.grid.name: _room(view, now) for view in views}
    offers = [
        Supply(view.grid, view.live, rooms[view.grid.name].pilots, _cost(view)) for view in views
    ]
    matched = match(demands, eligible, ranks, offers)
    surplus = {view.grid.name: list(_surplus(view, matched)) for view in views}
    return Plan(
        submits=tuple(_submits(views, matched)),
        cancels=tuple(
            cancel for view in views for cancel in _cancels(view, surplus[view.grid.name], now)
        ),
        surplus=frozenset(pilot.id for pilots in surplus.values() for pilot in pilots),
        notes={
            view.grid.name: _note(view, rooms[view.grid.name], demands, obstacles, matched)
            for view in views
        },
        unserved=dict(_unserved(demands, views, obstacles, eligible)),
        refusals=dict(_refused(demands, views, obstacles)),
    )


def plan_without_server(views: Sequence[GridView], problem: str, now: float) -> Plan:
    """Decide what is to be taken back whatever the demand; a drain must not wait for the server."""
    return Plan(
        cancels=tuple(cancel for view in views for cancel in _cancels(view, (), now)),
        notes={view.grid.name: f"no answer from the server: {problem}" for view in views},
    )


def _needs(demand: BotDemand) -> tuple[Need, Need]:
    return Need(demand.bot, dedicated=False), Need(demand.bot, dedicated=True)


def _suited(
    demands: Sequence[BotDemand], views: Sequence[GridView], queue: Mapping[str, Any], now: float
) -> tuple[dict[tuple[Need, str], str], dict[int, float]]:
    """Return what keeps BOTs from grids, and their Ranks on the first host that is known."""
    seen = [(view.grid, record(view.ad), _hosts(view)) for view in views]
    some_host = next((hosts[0] for _, _, hosts in seen if hosts), None)
    found: dict[tuple[Need, str], str] = {}
    ranks: dict[int, float] = {}
    queue_record = record(queue)
    for demand in demands:
        eligibility = BotEligibility(demand, queue_record)
        ranks[demand.bot] = eligibility.rank(some_host, now) if some_host else 0.0
        for grid, ad, hosts in seen:
            obstacle = eligibility.obstacle(grid, ad, hosts, now)
            for need in _needs(demand):
                if text := obstacle or _dedication(need, grid):
                    found[need, grid.name] = text
    return found, ranks


def _hosts(view: GridView) -> list[Record]:
    return [new_pilots_host(host, view.grid) for host in view.hosts]


def _dedication(need: Need, grid: Grid) -> str:
    """Jobs that fail repeatedly go to a pool of dedicated hosts (paper section 7)."""
    if need.dedicated and not grid.is_dedicated:
        return "replicas that failed repeatedly are sent to dedicated grids only"
    return ""


def _room(view: GridView, now: float) -> Allowance:
    if view.barrier:
        return Allowance(0, view.barrier)
    return room(view.grid, view.pilots, view.health, view.used_hours, now, view.money)


def _cost(view: GridView) -> int:
    """Return what a core of a new pilot costs, more than any of a live one: ten seconds' wait is 1.

    What is dedicated, has GPUs or costs money is spared for replicas that can go nowhere else.
    """
    wait = min((queue_wait(view.pilots) or 0.0) / 10, 300)
    is_spared = view.grid.is_dedicated or view.grid.shape.gpus > 0 or view.grid.price > 0
    return round(100 + wait + 300 * view.health.failure_rate + 50 * is_spared)


def _submits(views: Sequence[GridView], matched: Matched) -> Iterator[Submit]:
    for view in views:
        name = view.grid.name
        used = matched.used.get(Lot(name, None), 0)
        if used:
            count = matched.pilots(Lot(name, None), view.grid)
            why = (
                f"BOTs of {', '.join(matched.owners[name])} need {counted(used, 'more core')} here"
            )
            yield Submit(name, count, matched.owners[name], view.health.bad_nodes, why)


def _surplus(view: GridView, matched: Matched) -> Iterator[Pilot]:
    """Yield waiting pilots beyond those that are needed, the youngest."""
    waiting: dict[tuple[str, ...], list[Pilot]] = {}
    for pilot in view.live:
        if pilot.state in (PilotState.SUBMITTING, PilotState.QUEUED) and not pilot.cancelled:
            waiting.setdefault(pilot.owners, []).append(pilot)
    for owners, pilots in waiting.items():
        needed = matched.pilots(Lot(view.grid.name, PilotState.QUEUED, owners), view.grid)
        pilots.sort(key=lambda pilot: (pilot.submitted_at, pilot.tag, pilot.index))
        yield from pilots[needed:]


def _cancels(view: GridView, surplus: Sequence[Pilot], now: float) -> Iterator[Cancel]:
    reasons: dict[str, list[Pilot]] = {}
    extra = {pilot.id for pilot in surplus}
    for pilot in view.live:
        # Without an id of the system's there is nothing to take back yet.
        if pilot.native_id and not pilot.cancelled:
            why = _why_cancel(view, pilot, extra, now)
            if why:
                reasons.setdefault(why, []).append(pilot)
    for why, pilots in reasons.items():
        yield Cancel(view.grid.name, tuple(pilots), why)


def _why_cancel(view: GridView, pilot: Pilot, surplus: set[str], now: float) -> str:
    if not pilot.is_waiting:
        return OUTLIVED if _is_overdue(pilot, now) else ""
    if view.is_drained:
        return "the grid is drained"
    if pilot.state is PilotState.HELD:
        since = pilot.waiting_at if pilot.waiting_at is not None else pilot.submitted_at
        return WHY_HELD if now - since > HELD_SECONDS else ""
    if now - pilot.submitted_at > view.grid.limits.max_queue_seconds:
        return f"queued longer than max_queue_seconds = {view.grid.limits.max_queue_seconds}"
    if pilot.id in surplus and pilot.surplus_cycles + 1 >= SURPLUS_CYCLES:
        return "no longer needed"
    return ""


def _is_overdue(pilot: Pilot, now: float) -> bool:
    """Tell whether it outlived its walltime: not each kind of grid ends it (local, GRAM's fork)."""
    if pilot.running_at is None:
        return False
    return now > pilot.running_at + pilot.walltime_seconds + OVERDUE_SECONDS


def _note(
    view: GridView,
    room: Allowance,
    demands: Sequence[BotDemand],
    obstacles: Obstacles,
    matched: Matched,
) -> str:
    """Say why nothing, or no more, is submitted to a grid: the first reason that applies."""
    if view.barrier:
        return view.barrier
    if view.health.most_new == 0:
        return view.health.reason
    name = view.grid.name
    wanting = [demand for demand in demands if demand.unsent]
    if not wanting:
        return "no BOT has unsent replicas"
    able = [need for demand in wanting for need in _needs(demand) if (need, name) not in obstacles]
    if not able:
        return "; ".join(_refusals(wanting, name, obstacles))
    is_short = any(matched.unmet.get(need) for need in able)
    why = room.why if is_short else "enough pilots are queued or running for the unsent replicas"
    return "; ".join(dict.fromkeys(filter(None, (why, _roughly(wanting), view.health.reason))))


def _roughly(wanting: Sequence[BotDemand]) -> str:
    owners = len({demand.owner for demand in wanting})
    if owners <= EXACT_OWNERS:
        return ""
    return f"{owners} owners compete; their shares are approximate"


def _refusals(wanting: Sequence[BotDemand], grid: str, obstacles: Obstacles) -> Iterator[str]:
    for demand in wanting[:_MOST_NAMED]:
        yield f"BOT {demand.bot} ({demand.name}): {obstacles[_needs(demand)[0], grid]}"
    if len(wanting) > _MOST_NAMED:
        yield f"and {len(wanting) - _MOST_NAMED} more BOTs"


def _refused(
    demands: Sequence[BotDemand], views: Sequence[GridView], obstacles: Obstacles
) -> Iterator[tuple[int, Mapping[str, str]]]:
    for demand in demands:
        ordinary, dedicated = _needs(demand)
        need = ordinary if demand.unsent > demand.dedicated else dedicated
        texts = {
            view.grid.name: obstacles.get((need, view.grid.name), exhausted(view.grid, view.money))
            for view in views
        }
        found = {name: text for name, text in texts.items() if text}
        if demand.unsent and found:
            yield demand.bot, found


def _unserved(
    demands: Sequence[BotDemand],
    views: Sequence[GridView],
    obstacles: Obstacles,
    eligible: Mapping[Need, frozenset[str]],
) -> Iterator[tuple[int, str]]:
    for demand in demands:
        ordinary, dedicated = _needs(demand)
        for need, count in (
            (ordinary, demand.unsent - demand.dedicated),
            (dedicated, demand.dedicated),
        ):
            if count > 0 and not eligible[need]:
                texts = Counter(obstacles[need, view.grid.name] for view in views)
                reasons = "; ".join(f"{text} ({n})" for text, n in texts.most_common())
                yield demand.bot, reasons or "no grid is configured"
