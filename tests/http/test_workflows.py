"""Workflows: what a run tells of itself, within limits, and who may read it."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from flask import request, request_finished
from tests.factories import submission
from tests.http.conftest import Answer, Person, Site
from tests.http.loopback import serve
from tests.system.deployment import eventually

from gridbot.api.connection import Connection
from gridbot.api.session import Session
from gridbot.dag.engine import events
from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.language.reader import Reading
from gridbot.dag.run.lots import Append, NodeLots
from gridbot.dag.run.shapes import OutputPlace, Shape, ShapedJob
from gridbot.dag.run.telling import ToldRun, WorkflowTeller
from gridbot_client.net.discovery import Endpoint
from gridbot_client.protocol import workflows
from gridbot_server.api import workflows as api
from gridbot_server.cycles import retention

NODES = [
    {"name": "A", "state": "done", "layer": 0, "tries": 1},
    {"name": "B", "state": "failed", "layer": 1, "tries": 2, "why": "Job failed with status 3"},
]
TOLD: dict[str, Any] = {
    "kind": "dag", "name": "DAG x.dag", "state": "running", "seconds": 30.0, "eta_seconds": 60.0,
    "layers": [{"done": 1}, {"failed": 1, "waiting": 1}], "nodes": NODES, "edges": [[0, 1]],
    "edges_total": 1,
}  # fmt: skip


def submit(person: Person, group: str = "run") -> int:
    body = submission(placeholders={"i": "int"}, group=group)
    return int(person("POST", "/api/v1/bots", json=body).json["id"])


def tell(person: Person, group: str = "run", **changes: Any) -> Answer:
    return person("PUT", f"/api/v1/groups/{group}/workflow", json={**TOLD, **changes})


def listed(person: Person) -> list[str]:
    found = person("GET", "/api/v1/workflows").json["workflows"]
    return [f"{item['name']} {item['state']}" for item in found]


def test_what_a_run_told_last_is_what_its_owner_reads(alice: Person) -> None:
    submit(alice)
    assert tell(alice).json["nodes_failed"] == 1
    told = tell(alice, seconds=40.0, why="it ends early").json
    found = alice("GET", f"/api/v1/workflows/{told['id']}").json
    assert (found["verdict"], found["why"], found["edges"], found["seconds"]) == (
        "33 % of 3 nodes done, 1 failed, about 60 s left", "it ends early", [[0, 1]], 40.0,
    )  # fmt: skip
    assert [(node["name"], node["state"], node["why"]) for node in found["nodes"]] == [
        ("A", "done", ""), ("B", "failed", "Job failed with status 3"),
    ]  # fmt: skip
    assert [layer["failed"] for layer in found["layers"]] == [0, 1]
    assert listed(alice) == ["DAG x.dag running"]


def test_others_learn_nothing_of_a_workflow_and_tell_nothing_of_it(
    site: Site, alice: Person, bob: Person, operator: Person
) -> None:
    submit(alice)
    told = tell(alice).json
    path = f"/api/v1/workflows/{told['id']}"
    assert (bob("GET", path).status_code, listed(bob)) == (404, [])
    assert bob("GET", path).json["detail"] == f"there is no workflow {told['id']}"
    assert [tell(person, state="done").status_code for person in (bob, operator)] == [404, 404]
    assert site.key_of(alice, "join")("GET", path).status_code == 403
    assert (operator("GET", path).json["state"], listed(operator)) == (
        "running", ["DAG x.dag running"],
    )  # fmt: skip


def test_a_workflow_needs_the_group_of_its_bots_and_goes_with_it(site: Site, alice: Person) -> None:
    assert tell(alice).status_code == 404
    bot = submit(alice)
    told = tell(alice).json
    alice("POST", f"/api/v1/bots/{bot}/cancel")
    alice("DELETE", f"/api/v1/bots/{bot}")
    while retention.remove_rows(site.conn, timedelta(0)):
        pass
    retention.remove_empty_groups(site.conn)
    assert alice("GET", f"/api/v1/workflows/{told['id']}").status_code == 404


def test_a_group_that_goes_while_its_run_tells_is_not_there(
    alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "find_group", lambda *_: 999)
    assert tell(alice).status_code == 404
    assert listed(alice) == []


def test_runs_that_go_on_are_listed_first_then_the_latest(alice: Person) -> None:
    for group, state in (("one", "done"), ("two", "running"), ("three", "failed")):
        submit(alice, group)
        tell(alice, group, name=group, state=state)
    assert listed(alice) == ["two running", "three failed", "one done"]


def test_a_run_that_is_not_heard_of_is_silent_and_one_that_said_its_end_is_not(
    site: Site, alice: Person
) -> None:
    for group, state in (("one", "done"), ("two", "running")):
        submit(alice, group)
        tell(alice, group, name=group, state=state)
    site.conn.execute("UPDATE workflow SET told_at = now() - interval '10 minutes'")
    assert listed(alice) == ["two silent", "one done"]
    found = alice("GET", "/api/v1/workflows").json["workflows"][0]
    assert found["verdict"].startswith("not heard of for 10 min, with 33 % of 3 nodes done")
    assert found["eta_seconds"] is None
    tell(alice, "two", name="two")
    assert listed(alice)[0] == "two running"


def test_runs_that_were_killed_long_ago_hide_none_that_came_after_them(
    site: Site, alice: Person
) -> None:
    for group, state in (("killed", "running"), ("done", "done"), ("runs", "running")):
        submit(alice, group)
        tell(alice, group, name=group, state=state)
    site.conn.execute(
        "UPDATE workflow SET told_at = now() - interval '2 days' WHERE name = 'killed'"
    )
    assert listed(alice) == ["runs running", "done done", "killed silent"]


NODE = NODES[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodes": [NODE] * (workflows.MAX_NODES + 1)}, "nodes"),
        ({"edges": [[0, 1]] * (workflows.MAX_EDGES + 1)}, "edges"),
        ({"layers": [{"done": 1}] * (workflows.MAX_LAYERS + 1)}, "layers"),
        ({"edges": [[0, 2]]}, "edge 0, 2: there are 2 nodes"),
        ({"edges": [[0, -1]]}, "edges[0][1]: -1 is less than 0"),
        ({"edges": [[0, 1, 1]]}, "edges[0]"),
        ({"layers": [{}]}, "node B: there are 1 layers"),
        ({"layers": [{"done": -1}]}, "layers[0].done: -1 is less than 0"),
        ({"layers": [{"lost": 1}]}, "layers[0].lost: unknown field"),
        ({"nodes": [{**NODE, "name": "x" * 101}]}, "nodes[0].name"),
        ({"nodes": [{**NODE, "name": "a\nb"}]}, "control characters"),
        ({"nodes": [{**NODE, "why": "\x1b[2J"}]}, "control characters"),
        ({"nodes": [{**NODE, "state": "owned"}]}, "nodes[0].state"),
        ({"nodes": [{**NODE, "bot": 1 << 63}]}, "nodes[0].bot"),
        ({"seconds": -1.0}, "seconds"),
        ({"state": "silent"}, "state"),
        ({"more": 1}, "more: unknown field"),
    ],
)
def test_what_is_beyond_the_limits_is_refused_by_name_and_changes_nothing(
    alice: Person, change: dict[str, Any], said: str
) -> None:
    submit(alice)
    told = tell(alice).json
    answer = tell(alice, **copy.deepcopy(change))
    assert (answer.status_code, said in answer.json["detail"]) == (400, True), answer.json
    assert alice("GET", f"/api/v1/workflows/{told['id']}").json["seconds"] == 30.0


def test_the_largest_graph_that_may_be_told_fits(alice: Person) -> None:
    submit(alice)
    name, why = "\N{PILE OF POO}" * 100, "\N{PILE OF POO}" * 200
    nodes = [{**NODE, "name": name, "why": why}] * workflows.MAX_NODES
    edges = [[0, workflows.MAX_NODES - 1]] * workflows.MAX_EDGES
    assert tell(alice, nodes=nodes, edges=edges, edges_total=10**9).status_code == 200


def test_a_body_beyond_a_megabyte_is_not_read(alice: Person) -> None:
    submit(alice)
    assert tell(alice, why="x" * (1 << 20)).status_code == 413


def test_what_runs_tell_is_not_noted_as_a_change(alice: Person) -> None:
    submit(alice)
    tell(alice)
    found = alice("GET", "/api/v1/audit").json["entries"]
    assert [entry["action"] for entry in found if "workflow" in entry["action"]] == []
    assert len(found) > 0


def engine_of(folder: Path) -> DagEngine:
    (folder / "x.dag").write_text("JOB A a.sub\nJOB B b.sub\nPARENT A CHILD B\n")
    engine = DagEngine(Reading(base=folder).read(["x.dag"]))
    engine.apply(events.Began())
    engine.apply(events.NodeSubmitted("A", 1, 1))
    return engine


@dataclass(frozen=True)
class Told:
    """A run with a BOT at a server, which it tells how it is."""

    engine: DagEngine
    teller: WorkflowTeller
    said: list[str]


@pytest.fixture
def run(
    site: Site, alice: Person, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Told]:
    """A run that has a BOT in its group; with the parameter `grouped` False, in none."""
    with serve(site.app) as url, Session(Connection(Endpoint(url, alice.token))) as session:
        lots = NodeLots(session, "0123456789", "DAG x.dag", lambda _: None, lambda _: None)
        grouped = getattr(request, "param", True)
        bot = submit(alice, lots.group if grouped else "other")
        lots.remember("key", bot)
        engine, said = engine_of(tmp_path), list[str]()
        told = ToldRun("dag", "DAG x.dag", time.time(), engine, lots)
        yield Told(engine, WorkflowTeller(told, session.connection, said.append), said)


def test_a_run_tells_how_it_is_says_where_that_is_shown_and_tells_its_end(
    run: Told, alice: Person
) -> None:
    run.teller.look(False)
    eventually(lambda: listed(alice) == ["DAG x.dag running"])
    eventually(lambda: len(run.said) == 1)
    run.engine.apply(events.JobEnded("A", 0, 1))
    run.teller.end("failed")
    assert listed(alice) == ["DAG x.dag failed"]
    (found,) = alice("GET", "/api/v1/workflows").json["workflows"]
    assert (found["nodes_failed"], found["nodes_futile"]) == (1, 1)
    assert run.said == [f"DAG x.dag: {run.said[0].split()[-1]}"]
    assert run.said[0].endswith(f"/workflows/{found['id']}")


def test_changes_that_follow_each_other_closely_are_told_together(run: Told, site: Site) -> None:
    told: list[str] = []

    def note(*_: object, **__: object) -> None:
        if request.method == "PUT":
            told.append(request.path)

    with request_finished.connected_to(note, site.app):
        for _ in range(50):
            run.teller.look(True)
        run.teller.end("done")
    assert len(told) == 2


@pytest.mark.parametrize("run", [False], indirect=True)
def test_a_server_that_takes_no_workflow_is_told_no_more_and_the_run_goes_on(
    run: Told, alice: Person
) -> None:
    run.teller.look(True)
    run.teller.end("done")
    assert (listed(alice), run.said) == ([], [])


def test_a_run_that_was_not_replayed_does_not_say_that_it_was_interrupted(
    run: Told, alice: Person
) -> None:
    run.teller.end("interrupted")
    assert listed(alice) == []


def test_a_job_that_the_server_refused_is_not_shown_as_the_one_that_got_its_number(
    site: Site, alice: Person
) -> None:
    jobs = [ShapedJob(Shape({}), {"i": "no number"}, [], OutputPlace("."))]
    with serve(site.app) as url, Session(Connection(Endpoint(url, alice.token))) as session:
        lots = NodeLots(session, "0123456789", "DAG x.dag", lambda _: None, lambda _: None)
        bot = submit(alice, lots.group)
        lot = lots.remember("key", bot)
        first = lot.total = lot.bot.show().jobs_total
        (refused,) = lots.send([Append(lot, lots.reserve(lot, "A", jobs), jobs)])
        lots.reserve(lot, "B", jobs)
        assert (refused.node, lots.place("A", 0), lots.place("B", 0)) == ("A", None, (bot, first))
        again = NodeLots(session, "0123456789", "DAG x.dag", lambda _: None, lambda _: None)
        again.expect(lot, "A", 0, [OutputPlace(".")])
        again.forget(refused)
        assert again.place("A", 0) is None
        again.expect(lot, "A", 0, [OutputPlace(".")])  # its next try
        assert again.place("A", 0) == (bot, 0)
