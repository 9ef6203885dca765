"""Pilots on a real Slurm cluster: four nodes of two CPUs."""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.orders import make_order
from tests.system.batch_systems import Slurm, open_folder, slurm
from tests.system.deployment import eventually
from tests.system.sightings import WAITS, found

from gridbot_overlay.decide.model import Grid, GridLimits, PilotShape, PilotState
from gridbot_overlay.submitters import KINDS, GridError, Submitter


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with open_folder("slurm") as folder, slurm(folder) as made:
        yield made


@pytest.fixture
def submitter(cluster: Slurm, private_directory: Path) -> Iterator[Submitter]:
    yield submitter_of(cluster, private_directory)
    cluster.cancel_everything()
    cluster.wait_idle()


def grid_of(cluster: Slurm, shape: PilotShape | None = None, *directives: str) -> Grid:
    return Grid(
        name="s",
        kind="slurm",
        shape=shape or PilotShape(),
        limits=GridLimits(max_running=8),
        directives=directives,
        options={"environment": cluster.env},
    )


def submitter_of(cluster: Slurm, folder: Path) -> Submitter:
    return KINDS["slurm"](grid_of(cluster), folder)


def test_a_pilot_runs_knows_itself_and_shows_its_owners_to_the_accounting(
    cluster: Slurm, submitter: Submitter
) -> None:
    says = 'echo "$GRIDBOT_PILOT_TAG $GRIDBOT_PILOT_INDEX $GRIDBOT_NATIVE_ID" >&2; exit 7'
    [native_id] = submitter.submit(make_order("knows", says, owners=("alice", "b,o b")))
    [pilot] = found(submitter, "knows", PilotState.ENDED)
    assert (pilot.native_id, pilot.exit_code) == (native_id, 7)
    assert submitter.tail(native_id, "knows") == f"knows 0 {native_id}\n"
    assert "Comment=gridbot for alice+b_o_b" in cluster.run("scontrol", "show", "job", native_id)


def test_an_array_is_one_submission_of_many_pilots(cluster: Slurm, submitter: Submitter) -> None:
    says = 'echo "$GRIDBOT_PILOT_INDEX $GRIDBOT_NATIVE_ID" >&2'
    native_ids = submitter.submit(make_order("many", says, count=5))
    pilots = found(submitter, "many", PilotState.ENDED)
    assert sorted(pilot.native_id for pilot in pilots) == native_ids
    said = [submitter.tail(native_id, "many") for native_id in native_ids]
    assert said == [f"{index} {native_id}\n" for index, native_id in enumerate(native_ids)]
    assert {pilot.native_id: pilot.index for pilot in pilots} == {
        native_id: index for index, native_id in enumerate(native_ids)
    }
    assert {pilot.node for pilot in pilots} <= set(cluster.nodes)


def test_pilots_that_find_no_room_are_queued_and_leave_when_cancelled(
    submitter: Submitter,
) -> None:
    native_ids = submitter.submit(make_order("full", WAITS, count=10))

    def is_full() -> bool:
        states = [pilot.state for pilot in submitter.pilots("full")]
        return states.count(PilotState.RUNNING) == 8 and states.count(PilotState.QUEUED) == 2

    eventually(is_full, what="8 that run and 2 that wait")
    submitter.cancel([*native_ids, "99999"])
    # Those that waited disappear from the listing at once.
    ended = found(submitter, "full", PilotState.ENDED)
    assert {pilot.native_id for pilot in ended} <= set(native_ids)
    submitter.cancel(native_ids)  # gone already, which is no error


def test_only_the_pilots_of_the_prefix_are_ours(cluster: Slurm, submitter: Submitter) -> None:
    cluster.run("sbatch", "--job-name=other|thing", "--output=/dev/null", "--wrap=sleep 600")
    submitter.submit(make_order("mine-1", WAITS))
    submitter.submit(make_order("mine-2", WAITS))
    assert sorted(pilot.tag for pilot in submitter.pilots("mine-")) == ["mine-1", "mine-2"]


def test_a_pilot_that_will_never_start_is_held_with_slurms_reason(
    cluster: Slurm, submitter: Submitter
) -> None:
    submitter.submit(make_order("long", WAITS, "--partition=short"))
    [pilot] = found(submitter, "long", PilotState.HELD)
    assert pilot.reason == "PartitionTimeLimit"
    submitter.submit(make_order("stopped", WAITS, "--hold"))
    [pilot] = found(submitter, "stopped", PilotState.HELD)
    assert pilot.reason == "JobHeldUser"


def test_a_pilot_ends_with_its_node_and_paused_nodes_are_avoided(
    cluster: Slurm, submitter: Submitter
) -> None:
    submitter.submit(make_order("unlucky", WAITS, "--nodelist=n2"))
    found(submitter, "unlucky", PilotState.RUNNING)
    cluster.set_node("n2", "down")
    try:
        [pilot] = found(submitter, "unlucky", PilotState.ENDED)
        assert (pilot.reason, pilot.node) == ("NODE_FAIL: NodeDown", "n2")
    finally:
        cluster.set_node("n2", "resume")
    submitter.submit(make_order("careful", WAITS, excluded_nodes=("n1", "n2", "n3"), count=2))
    pilots = found(submitter, "careful", PilotState.RUNNING)
    assert {pilot.node for pilot in pilots} == {"n4"}


def test_a_preempted_pilot_ends_and_is_not_started_again(
    cluster: Slurm, submitter: Submitter
) -> None:
    submitter.submit(make_order("meek", WAITS, "--nodelist=n1", "--exclusive"))
    found(submitter, "meek", PilotState.RUNNING)
    submitter.submit(
        make_order("mighty", WAITS, "--nodelist=n1", "--exclusive", "--partition=urgent")
    )
    found(submitter, "mighty", PilotState.RUNNING)
    [pilot] = found(submitter, "meek", PilotState.ENDED)
    assert pilot.reason == "PREEMPTED"


def test_a_controller_that_is_away_is_an_error_and_not_an_empty_list(
    cluster: Slurm, submitter: Submitter
) -> None:
    [native_id] = submitter.submit(make_order("lonely", WAITS))
    found(submitter, "lonely", PilotState.RUNNING)
    cluster.stop_controller()
    try:
        with ThreadPoolExecutor() as pool:  # each call waits for 9 s
            calls: list[Future[Any]] = [
                pool.submit(submitter.pilots, "lonely"),
                pool.submit(submitter.cancel, [native_id]),
                pool.submit(submitter.submit, make_order("late", WAITS)),
            ]
            checked = pool.submit(submitter.check)
        for call in calls:
            with pytest.raises(GridError, match="Unable to contact slurm") as caught:
                call.result()
            assert not caught.value.is_lasting
        [finding] = checked.result()
        assert not finding.is_good
    finally:
        cluster.start_controller()
    # It ran on meanwhile.
    [pilot] = found(submitter, "lonely", PilotState.RUNNING)
    assert pilot.native_id == native_id


def test_a_refusal_is_lasting_and_holds_slurms_words(submitter: Submitter) -> None:
    with pytest.raises(GridError, match="invalid partition specified: nowhere") as caught:
        submitter.submit(make_order("refused", WAITS, "--partition=nowhere"))
    assert caught.value.is_lasting


def test_a_submission_whose_reply_was_lost_is_found_by_its_tag(
    cluster: Slurm, private_directory: Path
) -> None:
    real = shutil.which("sbatch")
    lossy = private_directory / "bin" / "sbatch"
    lossy.parent.mkdir()
    lost = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    lossy.write_text(f'#!/bin/sh\n{real} "$@" > /dev/null\necho "{lost}" >&2\nexit 1\n')
    lossy.chmod(0o755)
    environment = {**cluster.env, "PATH": f"{lossy.parent}:{os.environ['PATH']}"}
    grid = Grid(name="s", kind="slurm", options={"environment": environment})
    submitter = KINDS["slurm"](grid, private_directory)
    with pytest.raises(GridError, match="Socket timed out") as caught:
        submitter.submit(make_order("lost", WAITS, count=3))
    assert not caught.value.is_lasting
    pilots = found(submitter, "lost", PilotState.RUNNING)
    assert sorted(pilot.index for pilot in pilots) == [0, 1, 2]
    submitter.cancel([pilot.native_id for pilot in pilots])
    found(submitter, "lost", PilotState.ENDED)


def test_check_is_green_where_pilots_can_run(cluster: Slurm, private_directory: Path) -> None:
    findings = submitter_of(cluster, private_directory).check()
    assert all(finding.is_good for finding in findings), findings
    assert {finding.what for finding in findings} == {
        "slurm",
        "partition",
        "logs",
        "sbatch --test-only",
    }
    assert not cluster.run("squeue", "-h").strip()  # and nothing was submitted


@pytest.mark.parametrize(
    ("shape", "directives", "said"),
    [
        (PilotShape(walltime_seconds=7200), [], "partition batch allows 3600 s"),
        (PilotShape(walltime_seconds=600), ["-p short"], "partition short allows 120 s"),
        (PilotShape(cpus=3), [], "nodes of 2 CPUs"),
        (PilotShape(memory_mb=9000), [], "nodes of 4000 MB"),
        (PilotShape(), ["--partition=nowhere"], "there are batch, short, urgent"),
        (PilotShape(), ["--account='"], "No closing quotation"),
    ],
)
def test_check_says_before_any_submission_what_would_never_start(
    cluster: Slurm, private_directory: Path, shape: PilotShape, directives: list[str], said: str
) -> None:
    submitter = KINDS["slurm"](grid_of(cluster, shape, *directives), private_directory)
    bad = [finding.text for finding in submitter.check() if not finding.is_good]
    assert any(said in text for text in bad), bad


def test_arrays_longer_than_the_cluster_allows_become_several(private_directory: Path) -> None:
    private_directory.chmod(0o755)
    with slurm(private_directory, nodes=1, MaxArraySize=3) as small:
        submitter = submitter_of(small, private_directory)
        native_ids = submitter.submit(make_order("split", WAITS, count=5))
        pilots = {pilot.native_id: pilot for pilot in submitter.pilots("split")}
        assert [pilots[native_id].index for native_id in native_ids] == [0, 1, 2, 3, 4]
        assert {pilot.tag for pilot in pilots.values()} == {"split"}
