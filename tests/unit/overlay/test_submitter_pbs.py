"""What a PBS is told and what is read from its answers, written after the manuals' formats."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from tests.orders import make_order

from gridbot_overlay.decide.model import Grid, PilotShape, PilotState
from gridbot_overlay.submitters import KINDS, GridError, pbs, pbs_check, pbs_reports

DATA = Path(__file__).resolve().parents[2] / "data" / "overlay"
SHAPE = PilotShape(cpus=2, memory_mb=2048, gpus=1, walltime_seconds=3661)


@pytest.mark.parametrize(
    ("flavour", "asked", "array"),
    [
        ("openpbs", "-l select=1:ncpus=2:mem=2048mb:ngpus=1 -l walltime=01:01:01", "-J 0-2"),
        ("torque", "-l nodes=1:ppn=2:gpus=1,mem=2048mb,walltime=01:01:01", "-t 0-2"),
    ],
)
def test_the_two_flavours_ask_in_their_own_words(flavour: str, asked: str, array: str) -> None:
    order = make_order("gb-x", count=3, shape=SHAPE)
    said = " ".join(pbs.submission(order, 0, 3, {**pbs.OPTIONS, "flavour": flavour}))
    assert asked in said
    assert array in said
    assert "-N gb-x -A gridbot.alice" in said


@pytest.mark.parametrize(
    ("flavour", "asked"),
    [
        ("openpbs", "-l select=3:ncpus=2:mem=2048mb -l place=scatter -l walltime=01:01:01"),
        ("torque", "-l nodes=3:ppn=2,mem=6144mb,walltime=01:01:01"),
    ],
)
def test_pilots_of_several_nodes_ask_for_nodes_apart(flavour: str, asked: str) -> None:
    order = make_order("gb-x", shape=replace(SHAPE, nodes=3, gpus=0))
    assert asked in " ".join(pbs.submission(order, 0, 1, {**pbs.OPTIONS, "flavour": flavour}))


def test_the_operators_account_is_the_one_that_is_charged() -> None:
    said = pbs.submission(make_order("gb-x", "", "-A proj12"), 0, 1, pbs.OPTIONS)
    assert [after for before, after in itertools.pairwise(said) if before == "-A"] == ["proj12"]


def test_a_flavour_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    grid = Grid(name="p", kind="pbs", options={"flavour": "lsf"})
    with pytest.raises(GridError, match="flavour is one of openpbs, torque"):
        KINDS["pbs"](grid, tmp_path)


def test_openpbs_pilots_are_told_apart() -> None:
    found = pbs_reports.jobs((DATA / "openpbs_qstat.txt").read_text(), "gb-", "alice")
    by_id = {sighting.native_id: sighting for sighting in found}
    assert set(by_id) == {
        *(f"1101[{index}].pbs1" for index in range(3)),
        *(f"{number}.pbs1" for number in (1102, 1103, 1104)),
    }
    assert by_id["1101[0].pbs1"].state is PilotState.RUNNING
    assert by_id["1101[0].pbs1"].node == "node07"
    assert by_id["1101[1].pbs1"].state is PilotState.ENDED
    assert by_id["1101[1].pbs1"].exit_code == 3
    waiting = by_id["1101[2].pbs1"]
    assert (waiting.state, waiting.index) == (PilotState.QUEUED, 2)
    assert waiting.reason == "Not Running: Insufficient amount of resource: ncpus (R: 2 A: 0 T: 64)"
    never = by_id["1102.pbs1"]
    assert (never.state, never.tag, never.index) == (PilotState.HELD, "gb-b", 4)
    assert (by_id["1103.pbs1"].state, by_id["1103.pbs1"].exit_code) == (PilotState.ENDED, 271)
    assert by_id["1104.pbs1"].state is PilotState.HELD


@pytest.mark.parametrize("name", ["openpbs_qstat.txt", "torque_qstat.txt"])
def test_a_stranger_who_calls_his_jobs_as_ours_gets_none_adopted(name: str) -> None:
    listing = (DATA / name).read_text()
    others = {sighting.native_id for sighting in pbs_reports.jobs(listing, "gb-", "mallory")}
    assert others == ({"1106.pbs1"} if name.startswith("openpbs") else set())
    assert pbs_reports.jobs(listing, "gb-", "") == []


def test_torque_appends_the_element_to_the_name() -> None:
    running, ended = pbs_reports.jobs((DATA / "torque_qstat.txt").read_text(), "gb-", "alice")
    assert (running.tag, running.index, running.node) == ("gb-t", 0, "node3")
    assert (ended.tag, ended.index, ended.exit_code) == ("gb-t", 1, -11)


def test_each_state_of_the_overlay_but_the_first_is_reached() -> None:
    assert set(pbs_reports.STATES.values()) == set(PilotState) - {PilotState.SUBMITTING}


@pytest.mark.parametrize(
    ("printed", "count", "ids"),
    [
        ("12.pbs1\n", 1, ["12.pbs1"]),
        ("12[].pbs1\n", 2, ["12[0].pbs1", "12[1].pbs1"]),
        ("12\n", 1, ["12"]),
    ],
)
def test_ids_are_read_from_what_qsub_prints(printed: str, count: int, ids: list[str]) -> None:
    assert pbs.elements(printed, count) == ids


@pytest.mark.parametrize("printed", ["", "qsub: oh no", "12.pbs1"])
def test_a_reply_without_the_id_is_an_error(printed: str) -> None:
    with pytest.raises(GridError, match="no such job id"):
        pbs.elements(printed, 2)


def test_check_compares_with_the_queue() -> None:
    text = (DATA / "openpbs_queue.txt").read_text()
    queues = dict(pbs_reports.records(text, pbs_check._QUEUE))
    fits = Grid(name="p", kind="pbs", shape=SHAPE)
    [finding] = pbs_check.of_queue(fits, "workq", queues["workq"])
    assert finding.is_good
    big = Grid(name="p", kind="pbs", shape=PilotShape(cpus=64, walltime_seconds=90000))
    [finding] = pbs_check.of_queue(big, "workq", queues["workq"])
    assert finding.text == (
        "it allows 86400 s; walltime_seconds is 90000; it allows 32 CPUs; cpus is 64"
    )
    [finding] = pbs_check.of_queue(fits, "debug", queues["debug"])
    assert finding.text.startswith("started is off; it allows 1800 s")


@pytest.mark.parametrize(
    ("directives", "queue"), [([], ""), (["-q long"], "long"), (["-q", "a", "-q b@server"], "b")]
)
def test_the_queue_is_the_one_that_the_directives_name(directives: list[str], queue: str) -> None:
    assert pbs_check.chosen(directives) == queue


@pytest.mark.parametrize(("text", "megabytes"), [("64gb", 65536), ("512mb", 512), ("2048kb", 2)])
def test_sizes_are_read(text: str, megabytes: float) -> None:
    assert pbs_check.megabytes(text) == megabytes
