"""What condor_submit is told, and what is understood of recorded answers of HTCondor 23.9."""

import json
from pathlib import Path

import pytest
from tests.orders import make_order

from gridbot_overlay.decide.model import PilotOrder, PilotShape, PilotState
from gridbot_overlay.submitters import GridError, htcondor
from gridbot_overlay.submitters.commands import Commands
from gridbot_overlay.submitters.logs import Logs

DATA = Path(__file__).parents[2] / "data" / "overlay"
LOGS = Logs(Commands(), "/var/logs")


def told(order: PilotOrder) -> dict[str, str]:
    lines = htcondor.description(order, "/var/logs/t.sh", LOGS).splitlines()
    pairs = (line.partition(" = ") for line in lines)
    return {name: value for name, equals, value in pairs if equals}


def test_a_submission_is_one_cluster_with_our_tag_and_the_owners() -> None:
    order = make_order("gb-1", count=5, owners=("alice", 'b"ob'))
    lines = htcondor.description(order, "/var/logs/gb-1.sh", LOGS).splitlines()
    assert lines[-1] == "queue 5"
    described = told(order)
    assert described["+GridBotTag"] == '"gb-1"'
    assert described["batch_name"] == "gb-1"
    assert described["+GridBotOwners"] == '"alice+b_ob"'
    assert described["error"] == "/var/logs/gb-1.$(ClusterId).$(ProcId).err"
    assert (described["request_cpus"], described["request_memory"]) == ("1", "100")


def test_gpus_are_requested() -> None:
    assert told(make_order("gb-1", shape=PilotShape(gpus=2)))["request_gpus"] == "2"
    assert "request_gpus" not in told(make_order("gb-1"))


def test_a_pilot_matches_no_machine_once_it_was_started() -> None:
    described = told(make_order("gb-1"))
    assert described["requirements"] == "!((MY.NumShadowStarts ?: 0) > 0)"
    assert "JobStatus == 1 && (MY.NumShadowStarts ?: 0) > 0" in described["periodic_remove"]


def test_what_the_operator_demands_of_machines_is_added_to_ours() -> None:
    order = make_order("gb-1", "x", "Requirements = HasFish", excluded_nodes=("n1", 'n"2'))
    lines = htcondor.description(order, "/s", LOGS).splitlines()
    demands = [line for line in lines if line.lower().startswith("requirements")]
    expected = '!((MY.NumShadowStarts ?: 0) > 0) && TARGET.Machine =!= "n1" && (HasFish)'
    assert demands == [f"requirements = {expected}"]


def test_the_operators_lines_come_after_ours() -> None:
    lines = htcondor.description(make_order("g", "x", "request_memory = 9"), "/s", LOGS).split("\n")
    assert lines.index("request_memory = 9") > lines.index("request_memory = 100")


def test_a_script_learns_its_ids_from_its_arguments() -> None:
    text = htcondor.body(make_order("gb-1", 'echo "$GRIDBOT_PILOT_INDEX $GRIDBOT_NATIVE_ID"'))
    assert Commands().run("sh", "-s", "12", "3", stdin=text) == "3 12.3\n"


@pytest.mark.parametrize(
    ("printed", "count", "ids"),
    [("7.0 - 7.0\n", 1, ["7.0"]), ("a warning\n12.0 - 12.2\n", 3, ["12.0", "12.1", "12.2"])],
)
def test_submitted_pilots_are_named(printed: str, count: int, ids: list[str]) -> None:
    assert htcondor.elements(printed, count) == ids


@pytest.mark.parametrize("printed", ["", "7.0 - 7.1\n", "7.0 - 8.0\n", "1 job(s) submitted"])
def test_a_reply_that_names_no_such_pilots_is_an_error_that_may_pass(printed: str) -> None:
    with pytest.raises(GridError) as caught:
        htcondor.elements(printed, 1)
    assert not caught.value.is_lasting


def test_the_queue_is_understood() -> None:
    jobs = htcondor.ads((DATA / "condor_q.json").read_text())
    running, evicted, waiting, held = htcondor.sightings(jobs, "gb-")
    assert (running.tag, running.native_id, running.index) == ("gb-1", "1.0", 0)
    assert (running.state, running.node, running.exit_code) == (
        PilotState.RUNNING,
        "localhost",
        None,
    )
    assert (evicted.state, evicted.reason) == (PilotState.ENDED, "evicted from its machine")
    assert evicted.exit_code is None
    assert (waiting.state, waiting.reason) == (PilotState.QUEUED, "no match found")
    assert held.state is PilotState.HELD
    assert held.reason == "submitted on hold at user's request (code 15)"


def test_what_left_the_queue_is_understood() -> None:
    jobs = htcondor.ads((DATA / "condor_history.json").read_text())
    done, removed = htcondor.sightings(jobs, "gb-")
    assert (done.state, done.exit_code, done.reason) == (PilotState.ENDED, 7, "")
    assert (removed.state, removed.exit_code) == (PilotState.ENDED, None)
    assert removed.reason == "via condor_rm (by user pilot)"


def test_others_jobs_are_passed_over_and_new_words_lose_no_pilot() -> None:
    ad: dict[str, object] = {"GridBotTag": "gb-1", "ClusterId": 1, "ProcId": 0, "JobStatus": 99}
    others: list[dict[str, object]] = [
        {**ad, "GridBotTag": "GB-1"},
        {**ad, "GridBotTag": "gb-1; x"},
        {**ad, "ClusterId": "1"},
        {"JobStatus": 2},
    ]
    [only] = htcondor.sightings([*others, ad], "gb-")
    assert only.state is PilotState.RUNNING


def test_attributes_without_a_value_are_no_trouble() -> None:
    ad = {"GridBotTag": "gb-1", "ClusterId": 1, "ProcId": 0, "JobStatus": 5}
    empty = dict.fromkeys(("HoldReason", "NumShadowStarts", "RemoteHost", "ExitCode"))
    [held] = htcondor.sightings([{**ad, **empty}], "gb-")
    assert (held.state, held.node) == (PilotState.HELD, "")


def test_nothing_printed_is_an_empty_list_and_rubbish_is_an_error() -> None:
    assert htcondor.ads("\n") == []
    for rubbish in ("-- Schedd: x", json.dumps({"ClusterId": 1}), "[1]"):
        with pytest.raises(GridError, match="no list of jobs"):
            htcondor.ads(rubbish)


@pytest.mark.parametrize(
    "words",
    [
        "ERROR: Failed to connect to queue manager",
        "-- Failed to fetch ads from: <127.0.0.1:9618> : localhost\nCEDAR:6001:Failed to connect",
        "Error: Couldn't contact the condor_collector: Can't find address of local schedd",
    ],
)
def test_words_of_a_pool_that_is_away_are_no_refusal(words: str) -> None:
    assert htcondor.AWAY.search(words)
