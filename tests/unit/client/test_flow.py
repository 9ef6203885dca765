"""What a flow refuses when it is declared, and its picture while it grows."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from gridbot import BadInput, Flow
from gridbot.dag.engine import events
from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.language.model import Dag


@pytest.fixture
def flow() -> Flow:
    return Flow("declared")


def nothing() -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda f: f.bot("fit {} {x}", f.bot("a").outputs["*"]), r"names {x}, .* have {i}"),
        (
            lambda f: f.bot("b {x}", f.bot("a", [{"y": 1}], name="a").outputs["*"]),
            r"names {x}, .* have {y}, {i}",
        ),
        (
            lambda f: f.bot("b {calls}", f.task(nothing)().outputs["*"]),
            r"names {calls}, .* have {i}",
        ),
        (lambda f: f.task(memroy=5)(nothing), "task nothing: a task has no 'memroy'"),
        (lambda f: f.task(outputs=["x"])(nothing), "a task has no 'outputs'"),
        (lambda f: f.task(policy="Rank = 1;")(nothing), "no 'policy'; say with requirements="),
        (lambda f: f.task(max_failures=1)(nothing), "a task has no 'max_failures'"),
        (lambda f: f.task(exit_codes=[3])(nothing), "a task has no 'exit_codes'"),
        (lambda f: f.task(inputs=[f.bot("a").outputs["*"]])(nothing), "pass outputs as arguments"),
    ],
)
def test_what_a_step_does_not_have_is_refused_at_its_declaration(
    flow: Flow, declare: Callable[[Flow], object], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        declare(flow)


def test_values_of_earlier_jobs_are_known_through_many_steps(flow: Flow) -> None:
    first = flow.bot("a {x}", [{"x": 1, "y": 2}])
    second = flow.bot("b {x} {i}", first.outputs["*"])
    assert flow.bot("c {y} {}", second.outputs["*"]).name == "c"


def test_the_name_of_a_task_is_that_of_its_steps_as_for_a_bot(flow: Flow) -> None:
    called = flow.task(name="total")(nothing)
    assert [called().name, called().name, flow.bot("true", name="total").name] == [
        "total", "total-2", "total-3",
    ]  # fmt: skip
    assert flow.task(nothing)().key == called().key


def test_a_share_of_failures_keeps_its_fraction(flow: Flow) -> None:
    def ends(most: str, jobs: int, failed: int) -> str:
        engine = DagEngine(Dag((), {}))
        step = flow.bot("true", range(jobs), max_failures=most)
        tolerance, is_share = step.tolerance
        engine.apply(events.NodeAdded("A", (), tolerance, is_share))
        engine.apply(events.Began())
        engine.apply(events.NodeSubmitted("A", 1, jobs))
        for job in range(jobs):
            engine.apply(events.JobEnded("A", job, int(job < failed)))
        return engine.table.nodes["A"].status.name

    assert (ends("0.5%", 1000, 5), ends("0.5%", 1000, 6)) == ("DONE", "ERROR")
    assert (ends("0.29%", 10_000, 29), ends("0.29%", 10_000, 30)) == ("DONE", "ERROR")
    assert (ends("5%", 100, 5), ends("2", 100, 3)) == ("DONE", "ERROR")


@pytest.fixture
def many_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("many_switches")
def test_the_picture_bears_steps_that_are_added_meanwhile(flow: Flow) -> None:
    wrong: list[Exception] = []
    is_over = threading.Event()

    def look() -> None:
        while not is_over.is_set():
            try:
                str(flow)
            except RuntimeError as error:
                wrong.append(error)
                return

    looker = threading.Thread(target=look)
    looker.start()
    for _ in range(1000):
        flow.bot("true")
    is_over.set()
    looker.join()
    assert wrong == []
