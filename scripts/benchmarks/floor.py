"""The floor alone: the least that a request can cost under our gunicorn."""

from __future__ import annotations

from collections.abc import Sequence

from .harness.command import measurement
from .harness.host_requests import COLUMNS, Cell, Size, bare_plan, celled, sized
from .harness.stages import Subject, bare, measure, server
from .harness.windows import Row, median_row


@measurement(COLUMNS)
@celled()
@sized(rounds=5, seconds=3.0, requests=20_000)
def floor(cells: Sequence[Cell], size: Size, quick: bool) -> list[Row]:  # noqa: ARG001
    """A view that answers with what it got, under the same gunicorn settings."""
    with server(jobs=1, least=0) as ours, bare(ours.data) as web:
        plans = (bare_plan(size.plan(0, *cell), web.port) for cell in cells)
        found = measure([Subject(web, plan) for plan in plans], size.rounds)
    return list(map(median_row, found))
