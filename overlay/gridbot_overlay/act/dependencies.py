"""What a constructor works with, put together once for each reading of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gridbot_overlay.act.server import Server
from gridbot_overlay.act.store import PilotStore
from gridbot_overlay.act.workers import GridWorkers
from gridbot_overlay.decide.model import Grid
from gridbot_overlay.pilot.pins import PilotPins
from gridbot_overlay.submitters import Submitter

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Whom the constructor speaks with, and what it remembers by."""

    grids: Mapping[str, Grid]
    submitters: Mapping[str, Submitter]  # by grid
    server: Server
    store: PilotStore
    pins: PilotPins
    say: Say
    workers: GridWorkers = field(default_factory=GridWorkers)
