"""What pilots cost, and what a budget of money leaves.  Pure; in whatever currency prices are.

A pilot's whole cost counts in the period in which it was submitted (days and months of UTC), at
the price of then.  So a budget holds whatever pilots do: what they may yet cost is reserved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from gridbot_overlay.decide.model import Grid, Pilot

DAY_SECONDS = 86_400
# Periods of budgets, and how they are called in a sentence.
PERIODS = {"day": "this day", "month": "this month", "ever": "in all"}
_LEAST_SECONDS = 60  # that are billed of a machine, and then by the second


@dataclass(frozen=True, slots=True)
class MoneySpent:
    """Of a grid, in the current period of its budget."""

    spent: float = 0.0  # for what has run so far
    reserved: float = 0.0  # what its live pilots may cost beyond that


def cost(seconds: float, price: float) -> float:
    """Return what so many seconds cost at a price per hour, as clouds bill them."""
    return max(_LEAST_SECONDS, math.ceil(seconds)) * price / 3600


def begin(period: str, now: float) -> float:
    """Return when the current period began, s since 1970; it is always a whole day."""
    if period == "ever":
        return 0.0
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (today.replace(day=1) if period == "month" else today).timestamp()


def spending(grid: Grid, pilots: Iterable[Pilot], ended: float, now: float) -> MoneySpent:
    """Add what live pilots cost to what those cost that have `ended` in the current period."""
    since = begin(grid.limits.budget_period, now)
    live = [pilot for pilot in pilots if pilot.is_live and pilot.submitted_at >= since]
    so_far = [
        cost(now - pilot.started_at, pilot.price) if pilot.started_at is not None else 0.0
        for pilot in live
    ]
    most = [cost(pilot.walltime_seconds, pilot.price) for pilot in live]
    reserved = sum(max(0.0, whole - part) for whole, part in zip(most, so_far, strict=True))
    return MoneySpent(ended + sum(so_far), reserved)


def affordable(grid: Grid, found: MoneySpent) -> int | None:
    """Return how many more pilots the budget pays to their walltime; None without a budget."""
    if grid.limits.budget is None or not grid.price:
        return None
    left = grid.limits.budget - found.spent - found.reserved
    return max(0, math.floor(left / _most(grid) + 1e-9))


def described(grid: Grid, found: MoneySpent) -> str:
    """Say what was spent, and what is left of the budget if there is one."""
    text = f"grid {grid.name} has spent {found.spent:.2f}"
    if grid.limits.budget is None:
        return text
    text += f" of {grid.limits.budget:.2f} {PERIODS[grid.limits.budget_period]}"
    if found.reserved:
        text += f"; its pilots may spend {found.reserved:.2f} more"
    if affordable(grid, found) == 0 and found.spent < grid.limits.budget:
        text += f"; another pilot may cost {_most(grid):.2f}"
    return text


def exhausted(grid: Grid, found: MoneySpent) -> str:
    """Say so where the budget pays no further pilot; "" where it does."""
    return described(grid, found) if affordable(grid, found) == 0 else ""


def _most(grid: Grid) -> float:
    return cost(grid.shape.walltime_seconds, grid.price)
