"""Several grids, and several constructors, on one real Slurm cluster: none disturbs another."""

import re
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.system.batch_systems import Slurm, open_folder, slurm
from tests.system.deployment import NO_COPIES, Deployment, eventually
from tests.system.overlays import Overlay, overlay
from tests.system.ssh_daemon import login_node

JOBS = 100
MANY = 1000
# A job of a few tenths of a second, so that constructors look while they run.
SQUARE = "sleep 0.2; echo $(($1 * $1))"
LIMITS = ("--max-running", "4", "--max-queued", "4", "--walltime", "10m")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    """Partitions `batch` and `second`, none of which preempts the other's jobs."""
    second = "second Nodes=ALL MaxTime=60 PriorityTier=1"
    with open_folder("slurm") as folder, slurm(folder, PartitionName=second) as made:
        yield made


@pytest.fixture
def large_cluster() -> Iterator[Slurm]:
    """As `cluster`, with room for ten pilots of up to two cores."""
    second = "second Nodes=ALL MaxTime=60 PriorityTier=1"
    with (
        open_folder("slurm") as folder,
        slurm(folder, nodes=5, cpus=4, PartitionName=second) as made,
    ):
        yield made


@pytest.fixture
def pilots(running: Deployment, cluster: Slurm, tmp_path: Path) -> Iterator[Overlay]:
    with overlay(running, tmp_path.name) as made:
        yield made
        cluster.cancel_everything()


def working(server: Deployment, bot: int) -> dict[str, set[str]]:
    """The pilots that hold replicas of a BOT, by grid."""
    rows = server.rows(
        "SELECT DISTINCT grid, pilot FROM lease JOIN client ON client.id = client WHERE bot = %s",
        bot,
    )
    return {grid: {name for other, name in rows if other == grid} for grid, _ in rows}


def assert_done(server: Deployment, bot: int, jobs: int = JOBS) -> None:
    with server.session() as session:
        results = sorted(int(result.stdout) for result in session.bot(bot).results())
    assert results == [number**2 for number in range(jobs)]
    assert server.rows("SELECT DISTINCT how FROM ended WHERE bot = %s", bot) == [("success",)]


def assert_none_disturbed(made: Overlay, *grids: str) -> None:
    """All pilots of all grids joined, and none was cancelled, by whomever."""
    sent = [pilot for grid in grids for pilot in made.pilots(grid)]
    assert {pilot.grid for pilot in sent} == set(grids)
    assert all(pilot.has_joined and not pilot.cancelled for pilot in sent), sent
    assert not any("CANCELLED" in pilot.reason for pilot in sent), sent
    assert not re.search(r"cancels|alone", made.log.read_text())
    statuses = made.statuses()
    assert all(statuses[grid]["failing"] == [] for grid in grids)


def run_held(
    server: Deployment, *overlays: Overlay, pilots: int, jobs: int = JOBS, seconds: float = 60.0
) -> int:
    """Run a BOT whose jobs wait until so many pilots hold one; return it when it is done."""
    gate = server.gate()
    bot = server.submit("--range", f"0:{jobs}", "--", *gate.command(SQUARE), policy=NO_COPIES)
    for made in overlays:
        made.start()

    def is_full() -> bool:
        return sum(map(len, working(server, bot).values())) == pilots

    eventually(is_full, what=f"{pilots} pilots that work")
    gate.open()
    server.wait(bot, seconds)
    for made in overlays:
        made.wait_left()
    return bot


def test_two_partitions_of_one_cluster_share_a_bot(
    running: Deployment, pilots: Overlay, cluster: Slurm
) -> None:
    pilots.add_slurm("low", cluster, "--directive=--partition=batch", *LIMITS)
    pilots.add_slurm("high", cluster, "--directive=--partition=second", *LIMITS)
    bot = run_held(running, pilots, pilots=8)
    assert_done(running, bot)
    assert_none_disturbed(pilots, "low", "high")


def test_ten_grids_of_one_cluster_share_a_thousand_jobs(
    running: Deployment, large_cluster: Slurm, tmp_path: Path
) -> None:
    """Two partitions, five accounts and two shapes; each grid has room for one pilot."""
    grids = [f"g{number}" for number in range(10)]
    with overlay(running, tmp_path.name) as made:
        for number, grid in enumerate(grids):
            partition = f"--directive=--partition={('batch', 'second')[number % 2]}"
            account = f"--directive=--account=lab{number % 5}"
            shape = ("--cpus", str(1 + number // 5), "--walltime", "10m")
            limits = ("--max-running", "1", "--max-queued", "1")
            made.add_slurm(grid, large_cluster, partition, account, *shape, *limits)
        bot = run_held(running, made, pilots=len(grids), jobs=MANY, seconds=300.0)
        assert_done(running, bot, MANY)
        assert_none_disturbed(made, *grids)


def test_a_cluster_that_is_reached_directly_and_by_ssh_is_no_trouble(
    running: Deployment, pilots: Overlay, cluster: Slurm, private_directory: Path
) -> None:
    with login_node(private_directory) as login:
        pilots.add_slurm("here", cluster, *LIMITS)
        pilots.add_slurm_by_ssh("far", cluster, login, *LIMITS)
        bot = run_held(running, pilots, pilots=8)
        assert_done(running, bot)
        assert_none_disturbed(pilots, "here", "far")


def test_two_constructors_with_grids_of_one_name_share_a_cluster(
    running: Deployment, pilots: Overlay, cluster: Slurm, tmp_path: Path
) -> None:
    with overlay(running, f"{tmp_path.name}-other") as other:
        for made in (pilots, other):
            made.add_slurm("s", cluster, *LIMITS)
        bot = run_held(running, pilots, other, pilots=8)
        assert_done(running, bot)
        for made in (pilots, other):
            assert_none_disturbed(made, "s")


def queued(cluster: Slurm) -> set[str]:
    return set(cluster.run("squeue", "--noheader", "--array", "--format=%i").split())


def test_a_job_with_our_name_that_nobody_submitted_is_cancelled_and_named(
    running: Deployment, pilots: Overlay, cluster: Slurm
) -> None:
    for name in ("low", "high"):
        pilots.add_slurm(name, cluster, *LIMITS)
    tag = f"{pilots.prefix}stray"
    run = ("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 600")
    stray = cluster.run(*run, f"--job-name={tag}").strip()
    stranger = cluster.run(*run, "--job-name=stranger").strip()
    pilots.start()
    eventually(lambda: queued(cluster) == {stranger}, what="the end of the orphan")
    said = f"low: cancels {stray} of {tag}: no constructor knows it"
    assert said in pilots.said()
    assert "high: cancels" not in pilots.said()


def test_pilots_that_a_restored_folder_has_forgotten_stay_until_their_key_is_revoked(
    running: Deployment, pilots: Overlay, cluster: Slurm
) -> None:
    # One that runs ends by itself when its key is revoked, maybe before it is cancelled.
    pilots.add_slurm("s", cluster, *LIMITS, "--directive", "--hold")
    running.submit("--range", "0:1", "--", "true")
    pilots.start()
    [native_id] = eventually(lambda: queued(cluster), what="a queued pilot")
    eventually(lambda: pilots.pilots("s")[0].native_id, what="the pilot's number")
    pilots.end(signal.SIGKILL)
    with closing(sqlite3.connect(pilots.folder / "overlay.db")) as db, db:
        db.execute("DELETE FROM pilot")
        db.execute("DELETE FROM submission")
    pilots.start()
    alone = rf"s: leaves {native_id} of (\w+) alone: .*: gridbot token revoke (\d+)$"
    found = eventually(lambda: re.search(alone, pilots.said(), re.M), what="the words")
    assert found is not None
    assert native_id in queued(cluster)
    assert "cancels" not in pilots.said()
    tag, key = found.groups()
    running.run("token", "revoke", key)
    said = f"s: cancels {native_id} of {tag}: no constructor knows it"
    eventually(lambda: said in pilots.said() and native_id not in queued(cluster), what="its end")
    assert pilots.said().count(" alone: ") == 1
    pilots.end()  # before the queue is emptied: it would submit others
