"""What a constructor works with, put together once for each reading of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gridbot_overlay.act.lanes import Lanes
from gridbot_overlay.act.server import Server
from gridbot_overlay.act.store import Store
from gridbot_overlay.decide.model import Grid
from gridbot_overlay.submitters import Submitter

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Whom the constructor speaks with, and what it remembers by."""

    grids: Mapping[str, Grid]
    submitters: Mapping[str, Submitter]  # by grid
    server: Server
    store: Store
    say: Say
    lanes: Lanes = field(default_factory=Lanes)
