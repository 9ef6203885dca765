"""The host request path: requests that report the last jobs and ask for more, beside the floor."""

from __future__ import annotations

from collections.abc import Sequence

from .harness.command import jobs_option, measurement
from .harness.host_requests import COLUMNS, Cell, Size, beside_floor, celled, sized
from .harness.stages import server
from .harness.windows import Row

_QUICK_JOBS = 20_000


@measurement(COLUMNS)
@celled()
@jobs_option()
@sized(rounds=5, seconds=3.0, requests=20_000)
def dispatch(cells: Sequence[Cell], jobs: int, size: Size, quick: bool) -> list[Row]:
    """Host requests that report their last jobs and ask for more, beside the floor."""
    jobs = _QUICK_JOBS if quick else jobs
    with server(jobs, least=jobs // 2) as ours:
        return beside_floor(ours, [size.plan(ours.port, *cell) for cell in cells], size.rounds)
