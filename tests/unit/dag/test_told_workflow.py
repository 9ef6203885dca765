"""What the server is told of a run: every node of a small graph, a bounded part of a large one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, cast

import pytest

from gridbot.dag.engine import events
from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.language.reader import Reading
from gridbot.dag.reports import workflow
from gridbot.dag.run import telling
from gridbot.dag.run.telling import ToldRun, WorkflowTeller
from gridbot_client.protocol.workflows import MAX_EDGES, MAX_LAYERS, MAX_NODES, MAX_SECONDS
from gridbot_server.models.requests import ToldWorkflow

DIAMOND = """JOB A a.sub
JOB B b.sub
JOB C c.sub
JOB D d.sub
FINAL F f.sub
PARENT A CHILD B C
PARENT B C CHILD D
"""


class Nowhere:
    """Places of jobs at a server: node A's are in BOT 7."""

    def place(self, node: str, process: int) -> tuple[int, int] | None:
        return (7, 10 + process) if node == "A" else None


def engine_of(text: str, folder: Path) -> DagEngine:
    (folder / "x.dag").write_text(text)
    engine = DagEngine(Reading(base=folder, join_nodes=False).read(["x.dag"]))
    engine.apply(events.Began())
    return engine


def told(engine: DagEngine, layers: workflow.Layers | None = None) -> workflow.Document:
    """What is told, which the server's own model must take."""
    found = workflow.document(
        "dag", "DAG x.dag", "running", engine, workflow.RunTimes(1.0, None),
        layers or workflow.Layers(), Nowhere(),
    )  # fmt: skip
    ToldWorkflow.model_validate(json.loads(json.dumps(found)))
    return found


def test_each_node_is_told_with_its_layer_its_job_and_why_it_waits(tmp_path: Path) -> None:
    engine = engine_of(DIAMOND, tmp_path)
    engine.apply(events.NodeSubmitted("A", 1, 2, "bot", 10))
    engine.apply(events.JobStarted("A", 0))
    found = told(engine)
    words = ("name", "state", "layer", "why")
    assert [tuple(node[word] for word in words) for node in found["nodes"]] == [
        ("A", "running", 0, ""),
        ("B", "waiting", 1, "waits for A"),
        ("C", "waiting", 1, "waits for A"),
        ("D", "waiting", 2, "waits for B, C"),
        ("F", "waiting", 3, ""),
    ]  # fmt: skip
    first = found["nodes"][0]
    assert (first["bot"], first["job"], first["jobs_running"], first["jobs_waiting"]) == (
        7,
        10,
        1,
        1,
    )
    assert sorted(found["edges"]) == [[0, 1], [0, 2], [1, 3], [2, 3]]
    assert found["layers"] == [{"running": 1}, {"waiting": 2}, {"waiting": 1}, {"waiting": 1}]


def test_of_a_failed_node_the_job_that_failed_is_told_and_why(tmp_path: Path) -> None:
    engine = engine_of(DIAMOND, tmp_path)
    engine.apply(events.NodeSubmitted("A", 1, 2, "bot", 10))
    engine.apply(events.JobEnded("A", 0, 0))
    engine.apply(events.JobEnded("A", 1, 3))
    failed, futile, *_ = told(engine)["nodes"]
    assert (failed["state"], failed["job"], futile["state"]) == ("failed", 11, "futile")
    assert "status 3" in failed["why"]


def test_of_a_failed_node_no_job_is_shown_that_was_only_removed_after_another_failed(
    tmp_path: Path,
) -> None:
    engine = engine_of(DIAMOND, tmp_path)
    engine.apply(events.NodeSubmitted("A", 1, 3, "bot", 10))
    engine.apply(events.JobEnded("A", 1, 3))
    engine.apply(events.JobRemoved("A", 0))
    engine.apply(events.JobRemoved("A", 2))
    assert [told(engine)["nodes"][0][word] for word in ("state", "job")] == ["failed", 11]


def test_a_node_that_begins_anew_has_no_job_of_its_last_try(tmp_path: Path) -> None:
    (tmp_path / "pre.sh").touch(0o755)
    engine = engine_of(f"{DIAMOND}SCRIPT PRE A pre.sh\nRETRY A 1\n", tmp_path)
    engine.apply(events.ScriptEnded("A", "PRE", 0))
    engine.apply(events.NodeSubmitted("A", 1, 1, "bot", 10))
    assert told(engine)["nodes"][0]["job"] == 10
    engine.apply(events.JobEnded("A", 0, 1))
    node = told(engine)["nodes"][0]
    assert (node["state"], node["tries"], node["bot"], node["job"]) == ("running", 2, None, None)


def test_a_large_graph_is_told_by_layers_and_its_failed_nodes_come_first(tmp_path: Path) -> None:
    width = 3000
    names = [f"N{n}" for n in range(width)]
    jobs = "".join(f"JOB {name} x.sub\n" for name in ["A", *names, "Z"])
    some = " ".join(names)
    engine = engine_of(f"{jobs}PARENT A CHILD {some}\nPARENT {some} CHILD Z\n", tmp_path)
    engine.apply(events.NodeSubmitted("A", 1, 1))
    engine.apply(events.JobEnded("A", 0, 0))
    engine.apply(events.NodeSubmitted("N900", 2, 1))
    engine.apply(events.JobEnded("N900", 0, 1))
    found = told(engine)
    assert (len(found["nodes"]), len(found["edges"]) <= MAX_EDGES) == (MAX_NODES, True)
    assert found["nodes"][-1]["name"] == "N900"
    assert [sum(layer.values()) for layer in found["layers"]] == [1, width, 1]
    assert len(json.dumps(found)) < 64_000


def test_a_dense_graph_is_told_with_a_bounded_number_of_edges(tmp_path: Path) -> None:
    left, right = ([f"{side}{n}" for n in range(60)] for side in "LR")
    jobs = "".join(f"JOB {name} x.sub\n" for name in [*left, *right])
    engine = engine_of(f"{jobs}PARENT {' '.join(left)} CHILD {' '.join(right)}\n", tmp_path)
    found = told(engine)
    assert (len(found["edges"]), found["edges_total"]) == (MAX_EDGES, 3600)


def test_layers_beyond_the_last_that_is_told_are_counted_in_it(tmp_path: Path) -> None:
    count = MAX_LAYERS + 50
    jobs = "".join(f"JOB N{n} x.sub\n" for n in range(count))
    edges = "".join(f"PARENT N{n} CHILD N{n + 1}\n" for n in range(count - 1))
    found = told(engine_of(f"{jobs}{edges}", tmp_path))
    assert len(found["layers"]) == MAX_LAYERS
    assert found["layers"][-1] == {"waiting": 51}


def test_nodes_that_are_added_while_a_flow_runs_get_their_layers(tmp_path: Path) -> None:
    engine, layers = engine_of("JOB A a.sub\n", tmp_path), workflow.Layers()
    told(engine, layers)
    engine.apply(events.NodeAdded("late", ("A",)))
    assert [node["layer"] for node in told(engine, layers)["nodes"]] == [0, 1]


def test_a_graph_with_a_circle_is_told_as_well(tmp_path: Path) -> None:
    engine = engine_of("JOB A a.sub\nJOB B b.sub\nPARENT A CHILD B\nPARENT B CHILD A\n", tmp_path)
    assert [node["layer"] for node in told(engine)["nodes"]] == [0, 0]


@pytest.mark.parametrize("done", [0, 2])
def test_the_time_that_is_left_follows_the_nodes_that_are_done(tmp_path: Path, done: int) -> None:
    engine = engine_of(DIAMOND, tmp_path)
    for name in ("A", "B")[:done]:
        engine.apply(events.NodeSubmitted(name, 1, 1))
        engine.apply(events.JobEnded(name, 0, 0))
    times = workflow.RunTimes.of(engine, time.time() - 60)
    assert (times.eta_seconds is None) == (not done)
    if times.eta_seconds is not None:
        assert times.eta_seconds == pytest.approx(60 * 3 / 2, rel=0.05)


def test_a_time_beyond_what_a_server_takes_is_not_told(tmp_path: Path) -> None:
    engine = engine_of(DIAMOND, tmp_path)
    engine.apply(events.NodeSubmitted("A", 1, 1))
    engine.apply(events.JobEnded("A", 0, 0))
    assert workflow.RunTimes.of(engine, time.time() - MAX_SECONDS / 2).eta_seconds is None
    assert workflow.RunTimes.of(engine, time.time() - 2 * MAX_SECONDS).seconds == MAX_SECONDS


class Strange:
    """A connection to what answers in a way of its own."""

    url = "http://x.example"

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def send(self, *_: object) -> object:
        return self._answer


class HasLot(Nowhere):
    group = "x"

    def known(self) -> list[str]:
        return ["a BOT"]


@pytest.mark.parametrize("answer", [[], {}, None, {"id": "\x1b[2J"}, {"id": [1]}])
def test_a_strange_answer_neither_holds_a_run_up_nor_is_shown(
    answer: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "_END_SECONDS", 60.0)
    said: list[str] = []
    lots, connection = HasLot(), Strange(answer)
    run = ToldRun("dag", "DAG x.dag", time.time(), engine_of(DIAMOND, tmp_path), cast(Any, lots))
    teller = WorkflowTeller(run, cast(Any, connection), said.append)
    teller.look(True)
    began = time.monotonic()
    teller.end("done")
    assert (time.monotonic() - began < 30.0, said) == (True, [])
