"""The host request path with few and with many jobs queued."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from .harness.command import measurement, several
from .harness.host_requests import COLUMNS, Size, beside_first, sized
from .harness.stages import Subject, server
from .harness.windows import Row


@measurement(COLUMNS)
@several("--queued", (10**4, 10**6, 10**7), "Jobs in the queue")
@sized(rounds=5, seconds=3.0, requests=3000)
def queue(queued: Sequence[int], size: Size, quick: bool) -> list[Row]:
    """The cost of a request and of the feeder as the queue grows."""
    taken = size.jobs()
    with ExitStack() as stack:
        subjects = []
        for level in (10**3, 10**4) if quick else queued:
            # It stays within a tenth of the level.
            stage = stack.enter_context(server(level + taken, level * 9 // 10 + taken))
            subjects.append(Subject(stage, size.plan(stage.port), {"queued": level}))
        return beside_first(subjects, size.rounds)
