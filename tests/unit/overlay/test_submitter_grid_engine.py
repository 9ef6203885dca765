"""What Grid Engine is told, and what is read from its answers: recorded ones of 8.1.9."""

import math
from pathlib import Path

import pytest
from tests.orders import make_order

from gridbot_overlay.decide.model import Grid, GridLimits, PilotShape, PilotState
from gridbot_overlay.submitters import (
    GridError,
    grid_engine,
    grid_engine_check,
    grid_engine_reports,
)
from gridbot_overlay.submitters.commands import Commands
from gridbot_overlay.submitters.logs import Logs

DATA = Path(__file__).resolve().parents[2] / "data" / "overlay"
LOGS = Logs(Commands(), "/shared/logs")


def listing(name: str) -> str:
    return (DATA / f"grid_engine_{name}").read_text()


def test_an_array_asks_for_what_its_pilots_need() -> None:
    shape = PilotShape(cpus=2, memory_mb=3001, gpus=2, walltime_seconds=900)
    order = make_order(
        "gb-x", "", "-q long.q", count=3, shape=shape, owners=("al", "b;o"), excluded_nodes=("n1",)
    )
    options = {**grid_engine.OPTIONS, "parallel_environment": "smp"}
    said = " ".join(grid_engine.submission(order, 0, 3, LOGS, options))
    for part in (
        "-N gb-x -A gridbot.al+b_o ",
        "-t 1-3",
        "-l h_rt=900 -l h_vmem=1501M -l gpu=2 -l hostname=!(n1) -pe smp 2",
        "-e /shared/logs/gb-x.$JOB_ID.$TASK_ID",
    ):
        assert part in said
    assert said.endswith("-q long.q")


def test_pilots_of_several_cpus_need_a_parallel_environment() -> None:
    with pytest.raises(GridError, match="parallel_environment") as caught:
        grid_engine.resources(PilotShape(cpus=2), (), grid_engine.OPTIONS)
    assert caught.value.is_lasting


def test_what_can_be_no_hosts_name_is_not_excluded() -> None:
    bad = ("n1)|(*", "*", "n1|n2", "")
    said = grid_engine.resources(PilotShape(), (*bad, "n5.site"), grid_engine.OPTIONS)
    assert [word for word in said if "hostname" in word] == ["hostname=!(n5.site)"]
    said = grid_engine.resources(PilotShape(), bad, grid_engine.OPTIONS)
    assert not any("hostname" in word for word in said)


def test_recorded_pilots_are_told_apart() -> None:
    found = grid_engine_reports.jobs(listing("qstat.xml"), "gb-")
    by_id = {sighting.native_id: sighting for sighting in found}
    assert len(by_id) == len(found) == 7 + 6 + 2
    assert (by_id["12.1"].state, by_id["12.1"].node) == (PilotState.RUNNING, "gridhost")
    assert (by_id["12.5"].state, by_id["12.5"].index) == (PilotState.QUEUED, 4)
    assert (by_id["13.9"].tag, by_id["13.9"].index) == ("gb-x2", 12)
    assert (by_id["2"].state, by_id["2"].reason) == (PilotState.HELD, "held")
    assert (by_id["3"].state, by_id["3"].reason) == (PilotState.HELD, grid_engine_reports.ERROR)


def test_an_error_state_is_explained_by_the_nodes_own_words() -> None:
    found = grid_engine_reports.jobs(listing("qstat.xml"), "gb-")
    explained = grid_engine_reports.explained(found, listing("qstat_j.txt"))
    [reason] = [sighting.reason for sighting in explained if sighting.native_id == "3"]
    assert "can't chdir to /nonexistent: No such file or directory" in reason


def test_a_pilot_whose_node_is_away_says_so() -> None:
    found = grid_engine_reports.jobs(listing("unreachable.xml"), "gb-x1")
    running = [sighting for sighting in found if sighting.state is PilotState.RUNNING]
    assert {sighting.reason for sighting in running} == {"its node does not answer"}


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("qw", PilotState.QUEUED),
        ("hqw", PilotState.HELD),
        ("Eqw", PilotState.HELD),
        ("t", PilotState.RUNNING),
        ("r", PilotState.RUNNING),
        ("dr", PilotState.RUNNING),
        ("Rr", PilotState.RUNNING),
        ("S", PilotState.RUNNING),
        ("Rq", PilotState.QUEUED),
        ("z", PilotState.ENDED),
        ("?", PilotState.RUNNING),
    ],
)
def test_letters_make_a_state(word: str, state: PilotState) -> None:
    assert grid_engine_reports.classify(word)[0] is state


def test_the_accounting_says_how_pilots_ended() -> None:
    records = grid_engine_reports.accounts(listing("qacct.txt"))
    assert records["11.2"] == grid_engine_reports.AccountingRecord(1, "")
    assert records["1.1"] == grid_engine_reports.AccountingRecord(
        137, "failed 100 : assumedly after job"
    )
    assert records["10"].reason.endswith("qmaster enforced h_rt, h_cpu, or h_vmem limit")


@pytest.mark.parametrize(
    ("text", "tasks"),
    [("", []), ("3", [3]), ("1,4,6-9:1", [1, 4, 6, 7, 8, 9]), ("1-5:2", [1, 3, 5])],
)
def test_tasks_of_an_array_are_expanded(text: str, tasks: list[int]) -> None:
    assert grid_engine_reports.tasks(text) == tasks


@pytest.mark.parametrize("text", ["", "error: no qmaster", "<job_info><queue_info>"])
def test_what_is_no_listing_is_an_error_and_not_an_empty_list(text: str) -> None:
    with pytest.raises(GridError, match="no XML"):
        grid_engine_reports.jobs(text, "gb-")


@pytest.mark.parametrize(
    ("printed", "count", "ids"), [("7\n", 1, ["7"]), ("7.1-2:1\n", 2, ["7.1", "7.2"])]
)
def test_ids_are_read_from_what_qsub_prints(printed: str, count: int, ids: list[str]) -> None:
    assert grid_engine.elements(printed, count) == ids


@pytest.mark.parametrize("printed", ["", "Your job 7 has been submitted", "7.1-3:1"])
def test_a_reply_without_the_id_is_an_error(printed: str) -> None:
    with pytest.raises(GridError, match="no such job id"):
        grid_engine.elements(printed, 2)


def test_check_compares_with_the_queues_and_the_cells_limits() -> None:
    queue = grid_engine_check.values(listing("queue.txt"))
    grid = Grid(name="g", kind="grid_engine", limits=GridLimits(max_running=8))
    assert grid_engine_check.of_queues(grid, {"all.q": queue}).is_good
    long = Grid(name="g", kind="grid_engine", shape=PilotShape(walltime_seconds=3601))
    finding = grid_engine_check.of_queues(long, {"all.q": queue})
    assert finding.text.endswith("walltime_seconds = 3601; there are all.q 3600 s")
    [finding] = grid_engine_check.of_limits(grid, {"max_u_jobs": "0", "max_aj_instances": "4"})
    assert finding.text == "it is 4; limits.max_running is 8"


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("INFINITY", math.inf), ("01:00:00", 3600), ("90", 90), ("2:0,[a=1]", 120)],
)
def test_time_limits_are_read(limit: str, seconds: float) -> None:
    assert grid_engine_check.seconds(limit) == seconds
