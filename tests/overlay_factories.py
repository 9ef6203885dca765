"""Demands, grids and pilots for tests of the overlay's decisions, and a world that obeys plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gridbot_overlay.decide.construct import GridView, Plan, plan
from gridbot_overlay.decide.model import BotDemand, Grid, GridLimits, Pilot, PilotShape, PilotState

NOW = 1_000_000.0
_WIDE = {"max_queued": 1000, "max_running": 1000, "submits_per_minute": 1000}
QUEUE = {"BOTsInQueue": 1, "JobsInQueue": 10}


def demand(bot: int = 1, **changes: Any) -> BotDemand:
    """What one BOT wants: ten replicas of one core."""
    values: dict[str, Any] = {
        "bot": bot,
        "name": f"bot {bot}",
        "owner": "ann",
        "is_operator": True,
        "share": 1.0,
        "unsent": 10,
        "dedicated": 0,
        "on_pilots": {},
        "seconds": None,
        "run_seconds": None,
        "cut_off_seconds": None,
        "cpus": 1,
        "memory_mb": 512,
        "gpus": 0,
        "policy": "",
        "ad": {"Id": bot, "Name": f"bot {bot}"},
    }
    return BotDemand(**{**values, **changes})


def grid(name: str = "g", **changes: Any) -> Grid:
    """A grid; fields of its shape and limits may be given directly."""
    shape = {key: changes.pop(key) for key in PilotShape.__slots__ if key in changes}
    limits = {key: changes.pop(key) for key in GridLimits.__slots__ if key in changes}
    return Grid(
        **{"name": name, "kind": "local", **changes},
        shape=PilotShape(**shape),
        limits=GridLimits(**{**_WIDE, **limits}),
    )


def pilot(index: int = 0, state: PilotState = PilotState.QUEUED, **changes: Any) -> Pilot:
    """A pilot of one core that serves ann."""
    values: dict[str, Any] = {
        "tag": "t",
        "index": index,
        "grid": "g",
        "state": state,
        "cpus": 1,
        "native_id": f"t.{index}",
        "submitted_at": NOW - 100,
        "started_at": None if state in (PilotState.QUEUED, PilotState.SUBMITTING) else NOW - 50,
        "ended_at": NOW - 10 if state is PilotState.ENDED else None,
        "owners": ("ann",),
    }
    return Pilot(**{**values, **changes})


def submits(found: Plan) -> dict[str, int]:
    """How many pilots a plan submits, by grid."""
    return {item.grid: item.count for item in found.submits}


class World:
    """Grids that carry out plans: submitted pilots wait, cancelled ones are gone."""

    def __init__(self, grids: Sequence[Grid], now: float = NOW) -> None:
        self.grids = {grid.name: grid for grid in grids}
        self.pilots: list[Pilot] = []
        self.now = now
        self._tags = 0

    def views(self) -> list[GridView]:
        """What the constructor would see."""
        return [
            GridView(
                grid=grid,
                pilots=[pilot for pilot in self.pilots if pilot.grid == name],
                used_hours=sum(p.hours for p in self.pilots if p.grid == name and not p.is_live),
            )
            for name, grid in self.grids.items()
        ]

    def step(self, demands: Sequence[BotDemand], seconds: float = 10.0) -> Plan:
        """Plan once, do it, and let time pass."""
        found = plan(demands, self.views(), QUEUE, self.now)
        gone = {pilot.id for cancel in found.cancels for pilot in cancel.pilots}
        self.pilots = [self._after(pilot, found.surplus, gone) for pilot in self.pilots]
        for item in found.submits:
            self._tags += 1
            shape = self.grids[item.grid].shape
            self.pilots += [
                pilot(
                    index,
                    tag=f"w{self._tags}",
                    grid=item.grid,
                    native_id=f"w{self._tags}.{index}",
                    cpus=shape.cpus,
                    walltime_seconds=shape.walltime_seconds,
                    submitted_at=self.now,
                    owners=item.owners,
                )
                for index in range(item.count)
            ]
        self.now += seconds
        return found

    def change(self, which: Mapping[str, Mapping[str, Any]]) -> None:
        """Change pilots by id."""
        self.pilots = [replace(item, **which.get(item.id, {})) for item in self.pilots]

    def _after(self, item: Pilot, surplus: frozenset[str], gone: set[str]) -> Pilot:
        if item.id in gone:
            return replace(item, state=PilotState.ENDED, ended_at=self.now, cancelled="gone")
        return replace(item, surplus_cycles=item.surplus_cycles + 1 if item.id in surplus else 0)
