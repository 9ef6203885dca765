"""Pilots come where BOTs demand them, and leave; nobody does anything but submit the BOT."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.overlay_wheels import lay_wheels
from tests.system.batch_systems import Slurm, open_folder, slurm
from tests.system.deployment import NO_COPIES, Deployment, eventually
from tests.system.overlays import Overlay, overlay

from gridbot_overlay.decide.health import is_broken
from gridbot_overlay.decide.model import Pilot
from gridbot_server.storage import invariants

SQUARES = ("--", "sh", "-c", "echo $(($1 * $1))", "job", "{}")


@pytest.fixture
def pilots(running: Deployment, tmp_path: Path) -> Iterator[Overlay]:
    with overlay(running, tmp_path.name) as made:
        yield made


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with open_folder("slurm") as folder, slurm(folder) as made:
        yield made


def squares(server: Deployment, bot: int) -> list[int]:
    """What its jobs printed."""
    with server.session() as session:
        return sorted(int(result.stdout) for result in session.bot(bot).results())


def grids_of(server: Deployment, bot: int, how: str) -> set[str]:
    """Where replicas ended so."""
    query = "SELECT DISTINCT grid FROM ended JOIN client ON client.id = client WHERE bot = %s"
    return {grid for (grid,) in server.rows(f"{query} AND how = %s", bot, how)}


def finished(server: Deployment, bot: int) -> int:
    [(jobs,)] = server.rows("SELECT done FROM bot WHERE id = %s", bot)
    return int(jobs)


def of_submission(pilots: Overlay, number: int) -> list[Pilot]:
    """The pilots of the first submission to grid `s`, the second, ..."""
    known = pilots.pilots("s")
    tag = list(dict.fromkeys(pilot.tag for pilot in known))[number - 1]
    return [pilot for pilot in known if pilot.tag == tag]


def test_pilots_come_for_a_bot_and_leave_when_it_has_ended(
    running: Deployment, pilots: Overlay
) -> None:
    pilots.add("local", "here", "--max-running", "2")
    pilots.start()
    bot = running.submit("--range", "0:40", *SQUARES, policy=NO_COPIES)
    running.wait(bot)
    pilots.wait_left()
    assert squares(running, bot) == [number**2 for number in range(40)]
    assert 1 <= len(pilots.pilots("here")) <= 2
    status = pilots.status("here")
    assert (status["jobs"], status["failures"], status["failing"]) == (40, 0, [])
    worked = sum(pilot.core_seconds for pilot in pilots.pilots("here"))
    [(ran,)] = running.rows("SELECT sum(wall_seconds)::float8 FROM ended WHERE bot = %s", bot)
    assert worked == pytest.approx(ran)
    assert 0 < status["wasted_pilot_hours"] < status["pilot_hours"]
    names = {pilot.id for pilot in pilots.pilots("here")}

    def kept() -> set[str]:
        listed = running.run("overlay", "logs", "--json", "--data", str(pilots.folder))
        return {item["pilot"] for item in json.loads(listed)["logs"]}

    eventually(lambda: kept() >= names, what="the pilots' ends at the server")
    ended = re.findall(
        r"here: \d pilots? ended after (\d+) jobs? and 0 failures$", pilots.said(), re.M
    )
    assert sum(map(int, ended)) == 40
    eventually(
        lambda: not running.rows("SELECT FROM token WHERE grid = 'here' AND revoked_at IS NULL"),
        what="the revocation of the pilots' keys",
    )


def test_a_bot_that_begins_wakes_the_constructor(running: Deployment, pilots: Overlay) -> None:
    pilots.add("local", "here", "--max-running", "1")
    pilots.interval = "1d"
    pilots.start()
    eventually(lambda: pilots.status("here")["looked_seconds_ago"] is not None, what="a look")
    bot = running.submit("--range", "0:3", *SQUARES, policy=NO_COPIES)
    running.wait(bot)
    assert squares(running, bot) == [0, 1, 4]


def test_jobs_that_no_pilot_lives_for_burn_two_generations_and_say_so(
    running: Deployment, pilots: Overlay
) -> None:
    pilots.add("local", "here", "--max-running", "1", "--walltime", "60s")
    pilots.start()
    bot = running.submit("--range", "0:2", "--", "sleep", "600", policy=NO_COPIES)
    what = "the reason"
    eventually(lambda: "needs more than" in pilots.status("here")["why"], seconds=300, what=what)
    pilots.wait_left()
    assert len(pilots.pilots("here")) <= 2
    for command in ("show", "explain"):
        said = running.run("bot", command, str(bot))
        assert "a replica needs more than" in said and "grid here" in said
    running.run("bot", "cancel", str(bot))


def test_check_on_another_machine_says_that_its_key_must_be_introduced(
    running: Deployment, pilots: Overlay, tmp_path: Path
) -> None:
    pilots.add("local", "here", "--max-running", "1")  # with the owner's first key
    far = tmp_path / "far"
    for folder in (pilots.folder, far):
        lay_wheels(folder)
    near = running.run("overlay", "check", "--data", str(pilots.folder))
    assert "ok   server: keys that pilots trust: the project's, and 1 key of owners" in near
    said = running.run("overlay", "check", "--data", str(far), key=running.operator_key, code=1)
    assert "BAD  server: keys that pilots trust: this owner has a signing key" in said
    assert "run gridbot key add" in said


def test_a_grid_that_the_bots_policy_excludes_gets_no_pilot(
    running: Deployment, pilots: Overlay
) -> None:
    pilots.add("local", "good", "--max-running", "1")
    pilots.add("local", "excluded", "--max-running", "1")
    pilots.start()
    bot = running.submit("--range", "0:10", *SQUARES, policy='GridPolicy = Grid.Name == "good"')
    running.wait(bot)
    assert grids_of(running, bot, "success") == {"good"}
    assert pilots.pilots("excluded") == []
    assert pilots.pilots("good")


def test_a_job_that_fails_in_a_grid_ends_well_where_hosts_are_dedicated(
    running: Deployment, pilots: Overlay
) -> None:
    needed = running.folder / "needed" / "only-there"
    needed.parent.mkdir(exist_ok=True)
    needed.write_text("#!/bin/sh\necho 0\n")
    needed.chmod(0o755)
    pilots.add("local", "shared", "--max-running", "1")
    setup = f"export PATH={needed.parent}:$PATH"
    pilots.add("local", "pool", "--max-running", "1", "--dedicated", "--setup", setup)
    pilots.start()
    bot = running.submit("--range", "0:1", "--failover-after", "1", "--", "only-there")
    running.wait(bot)
    assert grids_of(running, bot, "error") == {"shared"}
    assert grids_of(running, bot, "success") == {"pool"}
    assert squares(running, bot) == [0]


def test_on_slurm_neither_lost_replies_nor_a_killed_constructor_cost_anything(
    running: Deployment, pilots: Overlay, cluster: Slurm
) -> None:
    pilots.add_slurm("s", cluster, "--max-running", "8", "--max-queued", "4", "--walltime", "10m")
    pilots.lose_replies(["away", "error"])
    pilots.start()
    gate = running.gate()
    script = "echo $(($1 * $1))"
    bot = running.submit("--range", "0:60", "--", *gate.command(script), policy=NO_COPIES)
    eventually(lambda: running.leases(bot), what="a lease")
    pilots.end(signal.SIGKILL)
    pilots.start()
    gate.open()
    running.wait(bot)
    pilots.wait_left()
    eventually(lambda: not cluster.run("squeue", "--noheader").strip(), what="an empty queue")
    assert squares(running, bot) == [number**2 for number in range(60)]
    successes = "SELECT count(*) FROM ended WHERE bot = %s AND how = 'success'"
    assert running.rows(successes, bot) == [(60,)]
    assert grids_of(running, bot, "error") == set()
    found, refused = (of_submission(pilots, number) for number in (1, 2))
    assert len(found) == 4 and not any(map(is_broken, found))
    assert refused and all("something is wrong" in pilot.reason for pilot in refused)
    with running.database() as conn:
        assert not invariants.check(conn, idle=False)
