"""The ad of a grid: what `Grid.…` means in a BOT's GridPolicy (paper section 5).  Pure.

The table below is the one list of the attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import Any

from gridbot_overlay.decide.model import Grid, Pilot, PilotState
from gridbot_overlay.decide.money import MoneySpent

GRID_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {
        "Name": "the grid's name in the overlay's configuration; its hosts' Host.Grid",
        "Kind": "the batch system, such as slurm",
        "IsDedicated": "true where nobody else's work preempts ours",
        "Nodes": "machines of one pilot",
        "Cpus": "processor cores of one pilot, on all its nodes",
        "Memory": "memory of one pilot, MB, on all its nodes",
        "Gpus": "GPUs of one pilot",
        "Walltime": "time after which the grid ends a pilot, s",
        "MaxQueued": "pilots that may wait there",
        "MaxRunning": "pilots that may be there at once",
        "Queued": "pilots that wait there now",
        "Running": "pilots that run there now",
        "FreeSlots": "pilots that may still be added",
        "QueueWait": "median wait of the last pilots that started, s; undefined before the first",
        "FailureRate": "share of the last pilots that failed to start or failed jobs, 0 to 1",
        "PilotHours": "pilot-hours used so far",
        "PilotHoursWasted": "of pilots of the last days: hours in which their cores ran nothing",
        "PilotHoursLeft": "pilot-hours left of the budget; undefined without one",
        "Price": "of one core for an hour, in the operator's currency; 0 where it costs nothing",
        "Spent": "money, in the period of its budget; undefined where pilots cost nothing",
        "BudgetLeft": "money left of the budget of this period; undefined without one",
        "LastHost": "ad of the host of the last pilot that joined; undefined before the first",
    }
)

_LAST_WAITS = 20


def grid_ad(
    grid: Grid,
    pilots: Sequence[Pilot],
    failure_rate: float,
    used_hours: float,
    wasted_hours: float,
    hosts: Sequence[Mapping[str, Any]],
    money: MoneySpent,
) -> dict[str, Any]:
    """Return the ad's values; `pilots` are those of the last hours, `hosts` the latest first."""
    live = [pilot for pilot in pilots if pilot.is_live]
    budget, most_money = grid.limits.budget_pilot_hours, grid.limits.budget
    return {
        "Name": grid.name,
        "Kind": grid.kind,
        "IsDedicated": grid.is_dedicated,
        "Nodes": grid.shape.nodes,
        "Cpus": grid.shape.all_cpus,
        "Memory": grid.shape.nodes * grid.shape.memory_mb,
        "Gpus": grid.shape.gpus,
        "Walltime": grid.shape.walltime_seconds,
        "MaxQueued": grid.limits.max_queued,
        "MaxRunning": grid.limits.max_running,
        "Queued": sum(pilot.is_waiting for pilot in live),
        "Running": sum(pilot.state is PilotState.RUNNING for pilot in live),
        "FreeSlots": max(0, grid.limits.max_running - len(live)),
        "QueueWait": queue_wait(pilots),
        "FailureRate": failure_rate,
        "PilotHours": used_hours,
        "PilotHoursWasted": wasted_hours,
        "PilotHoursLeft": None if budget is None else max(0.0, budget - used_hours),
        "Price": grid.price / grid.shape.all_cpus,
        "Spent": money.spent if grid.price else None,
        "BudgetLeft": None if most_money is None else max(0.0, most_money - money.spent),
        "LastHost": hosts[0] if hosts else None,
    }


def queue_wait(pilots: Iterable[Pilot]) -> float | None:
    """Return the median wait of the last pilots that started, s; None before the first."""
    started = sorted(
        (pilot.started_at, pilot.started_at - pilot.submitted_at)
        for pilot in pilots
        if pilot.started_at is not None
    )
    return median(wait for _, wait in started[-_LAST_WAITS:]) if started else None
