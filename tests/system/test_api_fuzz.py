"""A small share of `scripts/api-fuzz`: requests of all kinds, on a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scripts.api_fuzz.cli import unexpected
from scripts.api_fuzz.run import run
from scripts.boinc_replay import report
from tests.system.deployment import Deployment, deployment

REQUESTS = 1500


@pytest.fixture
def server() -> Iterator[Deployment]:
    with deployment() as made:
        made.start("--sign-on-submit", "--boinc-accounts")
        yield made


def test_no_request_makes_the_server_fail(server: Deployment) -> None:
    before = report.sizes(server.settings.log)
    outcome = run(
        server.url, server.operator_key, seed=1, is_over=lambda found: found.requests >= REQUESTS
    )
    assert outcome.faults == []
    assert unexpected(report.exceptions(server.settings.log, before)) == []
    # Requests that are all refused would show little.
    assert len(outcome.succeeded) > 20
    assert outcome.statuses[200] > REQUESTS / 10
