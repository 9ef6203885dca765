"""`gridbot server check` finds the database of a server that runs, is stopped, or was killed."""

from __future__ import annotations

import psutil
from tests.system.deployment import Deployment

from gridbot_server.supervision.processes import wait_gone


def test_a_server_is_checked_while_it_runs_and_while_it_is_stopped(fresh: Deployment) -> None:
    fresh.start()
    bot = fresh.submit("--range", "0:3", "--", "true", "{}")
    running = fresh.run("server", "check")
    with fresh.database() as conn:
        conn.execute("UPDATE bot SET done = 1 WHERE id = %s", [bot])
    broken = fresh.run("server", "check", code=1)
    fresh.stop()

    assert running.startswith("all ")
    assert "done_and_failed_count_the_outcomes: 1 broken by" in broken
    assert fresh.run("server", "check", code=1) == broken
    assert not _database_processes(fresh)


def test_after_a_check_of_a_stopped_server_it_can_be_started(fresh: Deployment) -> None:
    fresh.start()
    fresh.stop()
    fresh.run("server", "check")
    fresh.start()

    assert fresh.run("server", "check").startswith("all ")


def test_what_a_killed_server_left_running_is_not_disturbed(fresh: Deployment) -> None:
    fresh.start()
    left = psutil.Process(fresh.children()["postgresql"])
    supervisor = psutil.Process(fresh.supervisor)
    supervisor.kill()
    wait_gone([supervisor], 10)

    assert "gridbot server stop" in fresh.run("server", "check", code=1)
    assert left.is_running()


def _database_processes(server: Deployment) -> set[int]:
    """The PostgreSQL processes that a supervisor started."""
    cluster = str(server.data / "postgresql")
    return {
        process.pid
        for process in psutil.process_iter(["name", "cwd"])
        if process.info["name"] == "postgres" and process.info["cwd"] == cluster
    }
