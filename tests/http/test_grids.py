"""The registry of grids: what constructors told, for a while, also as GLUE 2.0."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.http.conftest import Person, Site
from tests.http.loopback import serve
from tests.http.test_gridbot_command import Run, runner

ICE = {
    "Name": "ice", "Kind": "slurm", "IsDedicated": False, "Cpus": 4, "Memory": 8000, "Gpus": 0,
    "Walltime": 7200, "MaxQueued": 10, "MaxRunning": 20, "Queued": 1, "Running": 2,
    "FreeSlots": 17, "QueueWait": 12.4, "FailureRate": 0.0, "PilotHours": 1.5,
}  # fmt: skip
FIRE = {**ICE, "Name": "fire", "Kind": "pbs", "Gpus": 2}
del FIRE["QueueWait"]  # nobody knows it yet
TOLD = {"constructor": "gb1.", "seconds": 900, "grids": {"ice": ICE, "fire": FIRE}}


def tell(operator: Person, **changes: Any) -> None:
    answer = operator("POST", "/api/v1/overlay/grids", json={**TOLD, **changes})
    assert answer.status_code == 200


def listed(person: Person, match: str = "") -> list[tuple[str, str]]:
    answer = person("GET", "/api/v1/grids", query_string={"match": match})
    assert answer.status_code == 200
    return [(grid["name"], grid["constructor"]) for grid in answer.json["grids"]]


def test_users_see_what_each_constructor_told_last_for_as_long_as_that_is_good(
    site: Site, alice: Person, operator: Person
) -> None:
    assert listed(alice) == []
    tell(operator)
    tell(operator, constructor="gb2.", grids={"ice": {**ICE, "Cpus": 8}})
    assert listed(alice) == [("fire", "gb1."), ("ice", "gb1."), ("ice", "gb2.")]
    assert alice("GET", "/api/v1/grids").json["grids"][1]["ad"] == ICE
    tell(operator, grids={"ice": ICE})
    assert listed(alice) == [("ice", "gb1."), ("ice", "gb2.")]
    site.conn.execute("UPDATE told_grids SET good_until = now() WHERE constructor = 'gb1.'")
    assert listed(alice) == [("ice", "gb2.")]


def test_an_operator_orders_what_a_constructor_asks_for(alice: Person, operator: Person) -> None:
    tell(operator, drained={"ice": "", "fire": "now"}, grids={"ice": ICE})

    def order(person: Person, **changes: str) -> int:
        body = {"constructor": "gb1.", "grid": "ice", "drained": "finish", **changes}
        return person("POST", "/api/v1/grids/orders", json=body).status_code

    def orders(after: int = 0) -> list[dict[str, Any]]:
        query = {"constructor": "gb1.", "after": after}
        found = operator("GET", "/api/v1/grids/orders", query_string=query).json
        return [dict(item) for item in found["orders"]]

    assert order(alice) == 403
    assert order(operator, grid="sea") == order(operator, constructor="gb2.") == 404
    assert order(operator, drained="soon") == 400
    assert orders() == []
    assert order(operator) == order(operator, grid="fire", drained="") == 201
    first, second = orders()
    assert (first["grid"], first["drained"]) == ("ice", "finish")
    assert (second["grid"], second["drained"]) == ("fire", "")
    assert orders(after=first["number"]) == [second]
    assert order(operator, drained="") == 201
    later = orders(after=second["number"])
    assert [(item["grid"], item["drained"]) for item in later] == [("ice", "")]
    assert [item["grid"] for item in orders()] == ["fire", "ice"]


def test_grids_are_sought_by_what_a_grid_policy_may_say(alice: Person, operator: Person) -> None:
    tell(operator)
    assert listed(alice, "Grid.Gpus > 0") == [("fire", "gb1.")]
    assert listed(alice, 'Grid.Kind == "slurm" && Grid.QueueWait < 60') == [("ice", "gb1.")]
    assert listed(alice, "Grid.QueueWait < 60") == [("ice", "gb1.")]  # fire's is undefined
    assert listed(alice, "Grid.Nonsense") == listed(alice, "Grid.Name") == []


def test_an_expression_that_is_none_is_refused_and_a_dear_one_suits_no_grid(
    alice: Person, operator: Person
) -> None:
    tell(operator)
    answer = alice("GET", "/api/v1/grids", query_string={"match": "Grid.Cpus >"})
    assert answer.status_code == 400
    assert answer.json["detail"].startswith("match: ")
    long = alice("GET", "/api/v1/grids", query_string={"match": "1 + " * 2000 + "1"})
    assert (long.status_code, long.json["detail"]) == (400, "match: more than 4096 characters")
    assert listed(alice, "+".join(["1"] * 2000)) == []


def test_grids_are_told_as_glue_2_with_their_time_to_live(alice: Person, operator: Person) -> None:
    tell(operator)
    found = alice("GET", "/api/v1/grids/glue2", query_string={"match": "Grid.Gpus == 0"}).json
    [service], [manager], [share] = (
        found[name] for name in ("ComputingService", "ComputingManager", "ComputingShare")
    )
    assert service["Associations"] == {
        "ComputingManagerID": [manager["ID"]], "ComputingShareID": [share["ID"]]
    }  # fmt: skip
    assert service["Validity"] == manager["Validity"] == share["Validity"] == 900
    assert manager["ProductName"] == "slurm"
    wanted = {
        "Name": "ice", "MaxWallTime": 7200, "MaxRunningJobs": 20, "MaxWaitingJobs": 10,
        "RunningJobs": 2, "WaitingJobs": 1, "TotalJobs": 3, "UsedSlots": 8, "FreeSlots": 68,
        "MaxMainMemory": 8000, "EstimatedAverageWaitingTime": 12,
    }  # fmt: skip
    assert {name: share[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    "change",
    [
        {"constructor": ""},
        {"seconds": 0},
        {"seconds": 86_401},
        {"grids": {"a b": ICE}},
        {"grids": {"ice": {"not a name": 1}}},
        {"grids": {"ice": {"Name": ["a", "list"]}}},
        {"grids": {"ice": {"Cpus": 1, "cpus": 2}}},
        {"grids": {"ice": {"Name": "x" * 1001}}},
        {"grids": {"ice": {"Cpus": None}}},
        {"grids": {f"grid{number}": {} for number in range(101)}},
    ],
)
def test_grids_of_strange_shape_are_refused(operator: Person, change: dict[str, Any]) -> None:
    answer = operator("POST", "/api/v1/overlay/grids", json={**TOLD, **change})
    assert answer.status_code == 400


def test_only_operators_tell_of_grids(alice: Person) -> None:
    assert alice("POST", "/api/v1/overlay/grids", json=TOLD).status_code == 403


@pytest.fixture
def run(site: Site, alice: Person, tmp_path: Path) -> Iterator[Run]:
    with serve(site.app) as url:
        yield runner(url, alice, tmp_path)


def test_the_command_line_lists_grids(run: Run, operator: Person) -> None:
    assert run("grids").stdout == "no grids; operators add them: gridbot overlay --help\n"
    tell(operator)
    _, *lines = run("grid", "list", "--match", "Grid.Gpus > 0").stdout.splitlines()
    assert [" ".join(line.split()) for line in lines] == ["fire pbs 4 8000 MB 2 2 h 0 min 2 1 17"]
    assert len(json.loads(run("grids", "--json").stdout)["grids"]) == 2
    assert len(json.loads(run("grids", "--glue2").stdout)["ComputingShare"]) == 2
    refused = run("grids", "--match", "Grid.Cpus >")
    assert refused.exit_code != 0
    assert "match: " in refused.stderr
