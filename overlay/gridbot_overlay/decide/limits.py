"""How many pilots a grid may be sent now, and which limit says so.  Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gridbot_overlay.decide.health import GridHealth
from gridbot_overlay.decide.model import Grid, Pilot
from gridbot_overlay.decide.money import MoneySpent, affordable, described

_RATE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """Pilots that may be submitted now; `why` names the tightest limit."""

    pilots: int
    why: str


def room(
    grid: Grid, pilots: Sequence[Pilot], health: GridHealth, used_hours: float, now: float,
    money: MoneySpent,
) -> Allowance:  # fmt: skip
    """Return the least of what the grid's limits leave; `pilots` are those of the last hours."""
    found = _rooms(grid, pilots, health, used_hours, now)
    paid = affordable(grid, money)
    bought = [] if paid is None else [Allowance(paid, described(grid, money))]
    return min([*found, *bought], key=lambda found: found.pilots)


def _rooms(
    grid: Grid, pilots: Sequence[Pilot], health: GridHealth, used_hours: float, now: float
) -> Iterator[Allowance]:
    limits = grid.limits
    live = [pilot for pilot in pilots if pilot.is_live]
    waiting = sum(pilot.is_waiting for pilot in live)
    lately = sum(pilot.submitted_at > now - _RATE_SECONDS for pilot in pilots)
    if health.most_new is not None:
        yield Allowance(health.most_new, health.reason)
    yield _under(limits.max_queued - waiting, f"max_queued = {limits.max_queued}")
    # A pilot that waits may run at any moment, and so counts as if it did.
    yield _under(limits.max_running - len(live), f"max_running = {limits.max_running}")
    yield _under(
        limits.submits_per_minute - lately, f"submits_per_minute = {limits.submits_per_minute}"
    )
    if limits.budget_pilot_hours is not None:
        # Whatever lives may yet live to its walltime: so the cap holds whatever happens.
        reserved = sum(pilot.hours for pilot in live)
        left = limits.budget_pilot_hours - used_hours - reserved
        affordable = math.floor(left / (grid.shape.walltime_seconds / 3600) + 1e-9)
        yield _under(
            affordable,
            f"budget_pilot_hours = {limits.budget_pilot_hours:g}:"
            f" {used_hours:.2f} used, {reserved:.2f} reserved for live pilots",
        )


def _under(pilots: int, why: str) -> Allowance:
    return Allowance(max(0, pilots), why)
