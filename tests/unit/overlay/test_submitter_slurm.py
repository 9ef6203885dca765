"""What Slurm is told, and what is read from its answers: recorded ones of release 22.05."""

import math
from pathlib import Path

import pytest
from tests.orders import make_order

from gridbot_overlay.decide.model import Grid, GridLimits, PilotShape, PilotState, Sighting
from gridbot_overlay.submitters import KINDS, GridError, slurm, slurm_check, slurm_states
from gridbot_overlay.submitters.commands import Commands
from gridbot_overlay.submitters.logs import Logs

DATA = Path(__file__).resolve().parents[2] / "data" / "overlay"
LOGS = Logs(Commands(), "/shared/logs")


def row(state: str, reason: str = "None", code: str = "0", node: str = "", job: str = "9") -> str:
    name = "gb-x"
    return f"{job:40}{state:20}{reason:80}{code:12}{node:80}{name:80}\n"


def only(listing: str) -> Sighting:
    [sighting] = slurm.parse(listing, "gb-")
    return sighting


def test_one_pilot_is_a_plain_job_with_all_that_it_asks_for() -> None:
    order = make_order(
        "gb-x", shape=PilotShape(cpus=2, memory_mb=3000, gpus=2, walltime_seconds=61)
    )
    command = slurm.submission(order, 0, 1, LOGS)
    assert command[0] == "sbatch"
    assert {
        "--job-name=gb-x",
        "--comment=gridbot for alice",
        "--cpus-per-task=2",
        "--mem=3000M",
        "--gres=gpu:2",
        "--time=2",
        "--no-requeue",
        "--error=/shared/logs/gb-x.%j.err",
    } <= set(command)
    assert not any(word.startswith("--array") for word in command)


def test_a_pilot_of_several_nodes_asks_for_as_much_of_each_and_knows_how_to_reach_them() -> None:
    order = make_order("gb-x", shape=PilotShape(nodes=3, cpus=2, memory_mb=3000))
    command = slurm.submission(order, 0, 1, LOGS)
    shape = {"--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--cpus-per-task=2", "--mem=3000M"}
    assert shape <= set(command)
    assert "export GRIDBOT_PILOT_NODES=" in slurm.body(order, 0)
    assert "GRIDBOT_PILOT_NODES" not in slurm.body(make_order("gb-x"), 0)


@pytest.mark.parametrize(
    ("kind", "shape", "words"),
    [
        ("local", PilotShape(nodes=2), "pilots of local have one node; nodes is 2"),
        ("grid_engine", PilotShape(nodes=2), "pilots of grid_engine have one node; nodes is 2"),
        ("htcondor", PilotShape(nodes=2), "pilots of htcondor have one node; nodes is 2"),
        ("slurm", PilotShape(nodes=2, gpus=1), "several nodes have no GPUs; gpus is 1"),
    ],
)
def test_nodes_that_a_grid_cannot_have_are_refused_by_name(
    kind: str, shape: PilotShape, words: str, tmp_path: Path
) -> None:
    with pytest.raises(GridError, match=words):
        KINDS[kind](Grid(name="g", kind=kind, shape=shape), tmp_path)


def test_a_later_part_of_a_long_order_says_where_it_begins() -> None:
    command = slurm.submission(make_order("gb-x", count=1500), 1000, 500, LOGS)
    assert {"--job-name=gb-x+1000", "--array=0-499"} <= set(command)


def test_the_operators_directives_come_last_and_nodes_are_excluded() -> None:
    order = make_order("gb-x", "", "-p long", "--qos=low", excluded_nodes=("n1", "n2"))
    command = slurm.submission(order, 0, 1, LOGS)
    assert command[-4:] == ["--exclude=n1,n2", "-p", "long", "--qos=low"]


def test_what_can_be_no_hosts_name_is_not_excluded() -> None:
    bad = ("n[1-999]", "n1,n2", "-n3", "n4 --wrap=x", "", "x" * 300)
    command = slurm.submission(make_order("gb-x", excluded_nodes=(*bad, "n5")), 0, 1, LOGS)
    assert [word for word in command if "exclude" in word] == ["--exclude=n5"]
    command = slurm.submission(make_order("gb-x", excluded_nodes=bad), 0, 1, LOGS)
    assert not any("exclude" in word for word in command)


@pytest.mark.parametrize("tag", ["", "1x", "a b", "a+1", "a\nb", "-x", "x" * 65])
def test_a_tag_that_could_be_mistaken_is_refused(tag: str) -> None:
    with pytest.raises(GridError, match="cannot be the name of a job"):
        slurm.submission(make_order(tag), 0, 1, LOGS)


def test_recorded_pilots_are_told_apart() -> None:
    found = slurm.parse((DATA / "slurm_squeue.txt").read_text(), "gb-")
    by_id = {sighting.native_id: sighting for sighting in found}
    assert len(by_id) == len(found) == 15  # neither the cancelled rest of array 1 nor another's job
    assert by_id["1_0"].state is PilotState.RUNNING
    assert (by_id["1_0"].node, by_id["1_4"].index) == ("n1", 4)
    assert (by_id["2_1"].tag, by_id["2_1"].index) == ("gb-a", 11)
    assert (by_id["1_3"].state, by_id["1_3"].reason) == (PilotState.ENDED, "CANCELLED")
    assert (by_id["1_6"].state, by_id["1_6"].reason) == (PilotState.QUEUED, "BeginTime")
    assert (by_id["3"].state, by_id["3"].reason) == (PilotState.HELD, "PartitionTimeLimit")
    assert (by_id["17"].state, by_id["17"].reason) == (PilotState.ENDED, "FAILED: BadConstraints")
    assert {s.native_id for s in slurm.parse((DATA / "slurm_squeue.txt").read_text(), "gb-c")} == {
        "4"
    }


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("Priority", PilotState.QUEUED),
        ("ReqNodeNotAvail, UnavailableNodes:n2", PilotState.QUEUED),
        ("AssocMaxJobsLimit", PilotState.QUEUED),  # lifted when our own pilots end
        ("QOSMaxCpuPerUserLimit", PilotState.QUEUED),
        ("AssocGrpCPURunMinutesLimit", PilotState.QUEUED),
        ("AssocGrpCPUMinutesLimit", PilotState.HELD),
        ("QOSMaxWallDurationPerJobLimit", PilotState.HELD),
        ("AssocMaxCpuPerJobLimit", PilotState.HELD),
        ("JobHeldAdmin", PilotState.HELD),
        ("launch failed requeued held", PilotState.HELD),
    ],
)
def test_a_pilot_is_held_when_it_cannot_start_without_help(reason: str, state: PilotState) -> None:
    assert only(row("PENDING", reason)).state is state


@pytest.mark.parametrize(
    ("state", "code", "read"),
    [
        ("FAILED", "1792", 7),
        ("FAILED", "9", -9),
        ("FAILED", "7:0", 7),
        ("FAILED", "0:9", -9),
        ("COMPLETED", "0", 0),
        ("CANCELLED", "15", None),
        ("FAILED", "?", None),
    ],
)
def test_exit_codes_are_read_in_both_forms(state: str, code: str, read: int | None) -> None:
    assert only(row(state, code=code, node="n1")).exit_code == read


def test_a_state_that_is_not_known_does_not_make_a_pilot_disappear() -> None:
    sighting = only(row("EXPEDITING"))
    assert (sighting.state, sighting.reason) == (PilotState.RUNNING, "EXPEDITING")


def test_each_state_of_the_overlay_but_the_first_is_reached() -> None:
    assert set(slurm_states.STATES.values()) == set(PilotState) - {PilotState.SUBMITTING}


@pytest.mark.parametrize(
    ("printed", "count", "ids"),
    [("12\n", 1, ["12"]), ("12;west\n", 2, ["12_0", "12_1"]), ("warning: x\n7\n", 1, ["7"])],
)
def test_ids_are_read_from_what_sbatch_prints(printed: str, count: int, ids: list[str]) -> None:
    assert slurm.elements(printed, count) == ids


def test_a_reply_without_an_id_is_an_error() -> None:
    with pytest.raises(GridError, match="no job id"):
        slurm.elements("Submitted to the void\n", 1)


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("2:00", 120), ("1:00:00", 3600), ("2-00:00:00", 172800), ("infinite", math.inf)],
)
def test_time_limits_are_read(limit: str, seconds: float) -> None:
    assert slurm_check.seconds(limit) == seconds


def test_recorded_partitions_and_configuration_are_read() -> None:
    known = slurm_check.partitions((DATA / "slurm_sinfo.txt").read_text())
    assert [(p.name, p.is_default, p.seconds, p.cpus, p.memory_mb) for p in known] == [
        ("batch", True, 3600, 2, 4000),
        ("urgent", False, 3600, 2, 4000),
        ("short", False, 120, 2, 4000),
    ]
    config = slurm_check.configuration((DATA / "slurm_config.txt").read_text())
    assert (config["MaxArraySize"], config["AccountingStorageEnforce"]) == ("1001", "none")


@pytest.mark.parametrize(
    ("directives", "names"),
    [
        ([], ["batch"]),
        (["-p", "short"], ["short"]),
        (["-pshort"], ["short"]),
        (["--partition=urgent,short"], ["urgent", "short"]),
        (["--partition=nowhere"], []),
    ],
)
def test_the_partition_is_the_one_that_the_directives_name(
    directives: list[str], names: list[str]
) -> None:
    known = slurm_check.partitions((DATA / "slurm_sinfo.txt").read_text())
    assert [partition.name for partition in slurm_check.chosen(directives, known)] == names


def test_large_numbers_of_sinfo_have_units() -> None:
    [partition] = slurm_check.partitions("fat|up|infinite|1.5K|2000000+\n")
    assert (partition.cpus, partition.memory_mb, partition.is_up) == (1536, 2000000, True)
    with pytest.raises(GridError, match="no number"):
        slurm_check.partitions("fat|up|infinite|many|1\n")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (["sci", "", "", "", ""], ""),
        (["sci", "", "4", "", ""], "MaxJobs is 4; limits.max_running is 8"),
        (["sci", "long", "", "9", ""], "MaxSubmit is 9; limits.max_running + max_queued is 10"),
        (["sci", "", "8", "10", "00:30:00"], "MaxWall is 00:30:00; walltime_seconds is 3600"),
    ],
)
def test_limits_of_an_account_are_compared_with_the_grids(row: list[str], said: str) -> None:
    grid = Grid(name="s", kind="slurm", limits=GridLimits(max_running=8, max_queued=2))
    finding = slurm_check.association(grid, row)
    assert (finding.is_good, finding.text if said else "") == (not said, said)
