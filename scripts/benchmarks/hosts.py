"""The host request path among few and among many known hosts; last, many of them ask."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from .harness.command import measurement, several
from .harness.host_requests import COLUMNS, CONCURRENCY, Size, beside_first, sized
from .harness.stages import HOSTS, Subject, server
from .harness.windows import Row

ASKING_HOSTS = 2000  # of a crowd, that take turns


@measurement(COLUMNS)
@several("--hosts", (10**2, 10**5), "Hosts that the server knows")
@sized(rounds=5, seconds=3.0, requests=3000)
def hosts(hosts: Sequence[int], size: Size, quick: bool) -> list[Row]:
    """The cost of a request as known hosts become more."""
    with ExitStack() as stack:
        subjects = []
        for known in (10**2, 10**3) if quick else hosts:
            stage = stack.enter_context(server(2 * size.jobs(), size.jobs(), max(known, HOSTS)))
            labels = {"known_hosts": known, "asking_hosts": CONCURRENCY}
            subjects.append(Subject(stage, size.plan(stage.port), labels))
        crowd = min(ASKING_HOSTS, known)
        labels = {**labels, "asking_hosts": crowd}
        subjects.append(Subject(stage, size.plan(stage.port, hosts=crowd), labels))
        return beside_first(subjects, size.rounds)
