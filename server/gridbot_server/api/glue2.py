"""Grids as entities of GLUE 2.0, OGF's information model (GFD.147), in JSON.  Pure.

Each grid is a ComputingService with its ComputingManager, the batch system, and a ComputingShare,
what the overlay may use of it.  A slot is a core of a pilot.  A job there is a pilot.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Any

from gridbot_server.models.responses.grids import GlueDocument, GlueEntity, GridState

# A grid's attributes are those of `gridbot_overlay.decide.grid_ad`.
_SHARE = {
    "MaxWallTime": "Walltime",  # s
    "MaxRunningJobs": "MaxRunning",
    "MaxWaitingJobs": "MaxQueued",
    "RunningJobs": "Running",
    "WaitingJobs": "Queued",
    "MaxSlotsPerJob": "Cpus",
    "MaxMainMemory": "Memory",  # MB
}
# What GLUE calls batch systems, where it has another name for them (ComputingManager_t).
_PRODUCTS = {"grid_engine": "gridengine", "htcondor": "condor", "local": "fork", "pbs": "torque"}


def glue2(grids: Sequence[GridState]) -> GlueDocument:
    """Describe these grids."""
    return GlueDocument(
        ComputingService=[_service(grid) for grid in grids],
        ComputingManager=[_manager(grid) for grid in grids],
        ComputingShare=[_share(grid) for grid in grids],
    )


def _service(grid: GridState) -> GlueEntity:
    return {
        **_entity("ComputingService", grid),
        "Type": "gridbot.overlay",
        "Capability": ["executionmanagement.jobexecution"],
        "QualityLevel": "production",
        "Associations": {
            "ComputingManagerID": [_id("ComputingManager", grid)],
            "ComputingShareID": [_id("ComputingShare", grid)],
        },
    }


def _manager(grid: GridState) -> GlueEntity:
    kind = str(grid.ad.get("Kind", "unknown"))
    return {
        **_entity("ComputingManager", grid),
        "ProductName": _PRODUCTS.get(kind, kind),
        "Associations": {"ComputingServiceID": _id("ComputingService", grid)},
    }


def _share(grid: GridState) -> GlueEntity:
    ad = grid.ad
    known = {name: ad[ours] for name, ours in _SHARE.items() if ad.get(ours) is not None}
    numbers = {name: _number(ad, name) for name in ("Running", "Queued", "FreeSlots", "Cpus")}
    if (wait := ad.get("QueueWait")) is not None:
        known["EstimatedAverageWaitingTime"] = round(float(wait))  # s
    return {
        **_entity("ComputingShare", grid),
        "ServingState": "production",
        **known,
        "TotalJobs": numbers["Running"] + numbers["Queued"],
        "UsedSlots": numbers["Running"] * numbers["Cpus"],
        "FreeSlots": numbers["FreeSlots"] * numbers["Cpus"],
        "Associations": {"ComputingServiceID": _id("ComputingService", grid)},
    }


def _number(ad: dict[str, Any], name: str) -> int:
    value = ad.get(name)
    return int(value) if isinstance(value, int | float) else 0


def _entity(kind: str, grid: GridState) -> GlueEntity:
    return {
        "ID": _id(kind, grid),
        "Name": grid.name,
        "CreationTime": f"{grid.told_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "Validity": grid.good_seconds,  # s
    }


def _id(kind: str, grid: GridState) -> str:
    return f"urn:glue2:{kind}:{grid.name}.{grid.constructor.rstrip('.')}"
