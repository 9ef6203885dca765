"""Claims about a database whose primary is lost under load, with standbys in quorum mode."""

from __future__ import annotations

from pathlib import Path

from tests.system import crashes
from tests.system.deployment import deployment
from tests.system.failover_rounds import fail_over
from tests.system.postgres_trio import trio


def test_no_acknowledged_report_is_lost_with_the_primary_and_work_goes_on_with_the_next(
    private_directory: Path,
) -> None:
    with trio(private_directory) as nodes, deployment(nodes.dsn) as server:
        server.configure(buffer_slots=256)
        server.start()
        with crashes.loaded(server, seed=1) as load:
            assert [made.fault for made in fail_over(server, nodes, load, ["kill"])] == ["kill"]
            load.drain()
        assert crashes.lost_reports(server, load) == []
        assert crashes.wrong_outcomes(server, load) == []
        assert crashes.violations(server, idle=False) == []
