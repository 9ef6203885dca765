"""The engine over random DAGs: every order of events gives DAGMan's outcome, and so does replay."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridbot.dag.engine import actions, events
from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.engine.limits import Throttles
from gridbot.dag.engine.table import DagStatus, NodeStatus
from gridbot.dag.language.model import Dag
from gridbot.dag.language.reader import Reading


def read(text: str, folder: Path) -> Dag:
    (folder / "x.dag").write_text(text)
    return Reading(base=folder).read(["x.dag"])


class Machine:
    """Carries out actions in an order that chance chooses, as a run does; keeps the events."""

    def __init__(self, dag: Dag, chance: Random, limits: Throttles | None = None) -> None:
        self.engine = DagEngine(dag, limits)
        self.chance, self.limits = chance, limits
        self.waiting: list[events.RunEvent] = []
        self.happened: list[events.RunEvent] = []
        self.ran: Counter[str] = Counter()
        self.order: list[tuple[str, str]] = []
        self.most_at_once = 0
        self.exits: dict[str, int] = {}

    def to_end(self) -> int:
        self.tell(events.Began())
        while not self.engine.is_over:
            assert self.waiting, "nothing goes on, and the run is not over"
            self.tell(self.waiting.pop(self.chance.randrange(len(self.waiting))))
        assert self.engine.exit_code is not None
        return self.engine.exit_code

    def tell(self, event: events.RunEvent) -> None:
        self.happened.append(event)
        for action in self.engine.apply(event):
            self.carry_out(action)
        submitted = self.engine.table.counts[NodeStatus.SUBMITTED]
        self.most_at_once = max(self.most_at_once, submitted)

    def carry_out(self, action: actions.Action) -> None:
        match action:
            case actions.SubmitNode(node=node):
                self.ran[node] += 1
                jobs = self.chance.choice((1, 1, 3))
                self.tell_later(events.NodeSubmitted(node, 1, jobs))
                for process in range(jobs):
                    self.tell_later(events.JobEnded(node, process, self.exits.get(node, 0)))
            case actions.RunScript(node=node, kind=kind):
                self.order.append((node, kind))
                code = self.exits.get(f"{kind}:{node}", 0)
                self.tell_later(events.ScriptEnded(node, kind, code))
            case actions.CancelJobs(node=node, processes=processes):
                for process in processes:
                    self.tell_later(events.JobRemoved(node, process))
            case actions.Wait(node=node, kind=kind):
                self.tell_later(events.Due(node, kind))
            case _:
                pass  # for the reports

    def tell_later(self, event: events.RunEvent) -> None:
        # A job cannot end before it was submitted.
        if isinstance(event, events.NodeSubmitted):
            self.tell(event)
        else:
            self.waiting.append(event)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[str, set[str], dict[str, int]]:
    """A DAG, the names of its nodes, and exit codes of jobs and scripts."""
    count = draw(st.integers(1, 9))
    names = [f"N{number}" for number in range(count)]
    lines = [f"JOB {name} a.sub" for name in names]
    exits: dict[str, int] = {}
    for child in range(1, count):
        parents = draw(st.sets(st.sampled_from(names[:child]), max_size=3))
        if parents:
            lines.append(f"PARENT {' '.join(sorted(parents))} CHILD {names[child]}")
    for name in names:
        if draw(st.integers(0, 3)) == 0:
            exits[name] = draw(st.integers(1, 3))
        if draw(st.booleans()):
            lines.append(f"RETRY {name} {draw(st.integers(0, 2))}")
        for kind in ("PRE", "POST"):
            if draw(st.integers(0, 3)) == 0:
                lines.append(f"SCRIPT {kind} {name} run.sh")
                if draw(st.integers(0, 2)) == 0:
                    exits[f"{kind}:{name}"] = 1
    return "\n".join(lines), set(names), exits


def fails(name: str, dag: Dag, exits: dict[str, int]) -> bool:
    """Whether each attempt of a node fails, by the rule of the manual."""
    node = dag.nodes[name]
    if node.pre and exits.get(f"PRE:{name}"):
        return True
    if node.post:
        return bool(exits.get(f"POST:{name}"))
    return bool(exits.get(name))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dags")


@settings(max_examples=100, deadline=None)
@given(graphs(), st.randoms(use_true_random=False), st.integers(0, 3))
def test_each_node_ends_as_the_manual_says_whatever_comes_first(
    folder: Path, graph: tuple[str, set[str], dict[str, int]], chance: Random, most: int
) -> None:
    text, names, exits = graph
    dag = read(text, folder)
    machine = Machine(dag, chance, Throttles(max_jobs=most))
    machine.exits = exits
    code = machine.to_end()
    nodes = machine.engine.table.nodes
    bad = {name for name in names if fails(name, dag, exits)}
    lost: set[str] = set()
    for name in sorted(names, key=lambda name: int(name[1:])):
        above: set[str] = set()
        for parent in dag.nodes[name].parents:  # through hidden nodes
            above |= {parent} if parent in names else set(dag.nodes[parent].parents)
        if above & (bad | lost):
            lost.add(name)
    for name in names:
        expected = (
            NodeStatus.FUTILE
            if name in lost
            else NodeStatus.ERROR
            if name in bad
            else NodeStatus.DONE
        )
        assert nodes[name].status is expected, name
        if expected is NodeStatus.ERROR:
            assert nodes[name].retries == nodes[name].max_retries
    assert code == (1 if bad - lost else 0)
    assert not most or machine.most_at_once <= most
    assert sum(machine.engine.table.sums(0).values()) == 2 * len(nodes)


@settings(max_examples=40, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_a_run_goes_on_from_each_prefix_of_its_journal(
    folder: Path, graph: tuple[str, set[str], dict[str, int]], chance: Random
) -> None:
    text, _, exits = graph
    dag = read(text, folder)
    whole = Machine(dag, chance)
    whole.exits = exits
    code = whole.to_end()
    for cut in range(1, len(whole.happened)):
        again = Machine(dag, chance)
        again.exits = exits
        for event in whole.happened[:cut]:
            again.engine.apply(events.event_of(event.document()))
        for action in list(again.engine.outstanding()):
            again.carry_out(action)
        submitted = Counter(
            event.node for event in whole.happened[:cut] if isinstance(event, events.NodeSubmitted)
        )
        for state in again.engine.table.nodes.values():
            for process in sorted(state.queued):
                again.waiting.append(events.JobEnded(state.name, process, exits.get(state.name, 0)))
        while not again.engine.is_over:
            again.tell(again.waiting.pop(chance.randrange(len(again.waiting))))
        assert again.engine.exit_code == code
        for name, state in again.engine.table.nodes.items():
            other = whole.engine.table.nodes[name]
            assert (state.status, state.retries) == (other.status, other.retries)
            # No job ran twice: what was submitted before the cut was not submitted again.
            assert submitted[name] + again.ran[name] == whole.ran[name]


@settings(max_examples=40, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_events_that_are_told_twice_change_nothing(
    folder: Path, graph: tuple[str, set[str], dict[str, int]], chance: Random
) -> None:
    text, _, exits = graph
    machine = Machine(read(text, folder), chance)
    machine.exits = exits
    machine.tell(events.Began())
    while not machine.engine.is_over:
        event = machine.waiting.pop(chance.randrange(len(machine.waiting)))
        machine.tell(event)
        if isinstance(event, events.JobEnded) and not machine.engine.is_over:
            state = machine.engine.table.nodes[event.node]
            if event.process not in state.queued:
                before = (state.status, state.retries, machine.engine.table.idle_jobs)
                assert machine.engine.apply(event) == []
                assert before == (state.status, state.retries, machine.engine.table.idle_jobs)


@settings(max_examples=100, deadline=None)
@given(graphs(), st.randoms(use_true_random=False), st.integers(0, 20))
def test_a_run_that_is_removed_at_any_time_ends_with_its_final_node(
    folder: Path, graph: tuple[str, set[str], dict[str, int]], chance: Random, steps: int
) -> None:
    text, _, exits = graph
    dag = read(f"{text}\nFINAL F a.sub", folder)
    machine = Machine(dag, chance, Throttles(max_pre=1, max_post=1))
    machine.exits = exits
    machine.tell(events.Began())
    for _ in range(steps):
        if not machine.engine.is_over:
            machine.tell(machine.waiting.pop(chance.randrange(len(machine.waiting))))
    machine.tell(events.Removed())
    while not machine.engine.is_over:
        assert machine.waiting, "nothing goes on, and the run is not over"
        machine.tell(machine.waiting.pop(chance.randrange(len(machine.waiting))))
    assert machine.ran["F"] == 1


def run(
    text: str, folder: Path, exits: dict[str, int] | None = None, limits: Throttles | None = None
) -> Machine:
    machine = Machine(read(text, folder), Random(1), limits)
    machine.exits = exits or {}
    machine.to_end()
    return machine


def test_abort_comes_before_retry_and_says_the_exit_code(folder: Path) -> None:
    text = "JOB A a.sub\nJOB B a.sub\nPARENT A CHILD B\nRETRY A 5\nABORT-DAG-ON A 3 RETURN 7"
    machine = run(text, folder, {"A": 3})
    assert (machine.engine.exit_code, machine.engine.status) == (7, DagStatus.ABORT)
    assert machine.ran == {"A": 1}


def test_the_final_node_runs_last_and_decides(folder: Path) -> None:
    text = "JOB A a.sub\nJOB B a.sub\nFINAL F a.sub\nPARENT A CHILD B"
    assert run(text, folder, {"A": 1}).engine.exit_code == 0
    assert run(text, folder, {"F": 1}).engine.exit_code == 1
    assert run(text, folder, {"A": 1}).ran == {"A": 1, "F": 1}


def test_a_category_lets_so_many_through_and_no_more(folder: Path) -> None:
    nodes = "".join(f"JOB N{n} a.sub\nCATEGORY N{n} c\n" for n in range(6))
    machine = run(f"{nodes}MAXJOBS c 2", folder)
    assert (machine.most_at_once, machine.engine.exit_code) == (2, 0)


def test_a_cycle_ends_the_run_when_nothing_else_is_left(folder: Path) -> None:
    nodes = "JOB A a.sub\nJOB B a.sub\nJOB C a.sub\n"
    text = f"{nodes}PARENT A CHILD B\nPARENT B CHILD C\nPARENT C CHILD B"
    machine = run(text, folder)
    assert (machine.engine.status, machine.engine.exit_code) == (DagStatus.CYCLE, 1)
    assert machine.ran == {"A": 1}


def test_weak_parents_have_to_end_and_not_to_succeed(folder: Path) -> None:
    text = "JOB A a.sub\nJOB B a.sub\nWEAK PARENT A CHILD B"
    machine = run(text, folder, {"A": 1})
    assert machine.engine.table.nodes["B"].status is NodeStatus.DONE


def test_a_tolerance_bears_so_many_failed_jobs(folder: Path) -> None:
    dag = read("JOB A a.sub\nTOLERANCE A 1", folder)
    engine = DagEngine(dag)
    engine.apply(events.Began())
    engine.apply(events.NodeSubmitted("A", 1, 3))
    for process, code in enumerate((0, 4, 0)):
        engine.apply(events.JobEnded("A", process, code))
    assert (engine.exit_code, engine.table.nodes["A"].status) == (0, NodeStatus.DONE)


@pytest.mark.parametrize(
    ("rule", "limits", "code", "cancels"),
    [
        ("", Throttles(job_failures=1), 0, False),
        ("TOLERANCE A 0", Throttles(job_failures=1), 1, True),
        ("", Throttles(remove_others=False), 1, False),
        ("TOLERANCE A 0 WAIT", Throttles(), 1, False),
        ("TOLERANCE A 0 FAIL-FAST", Throttles(remove_others=False), 1, True),
    ],
)
def test_settings_say_how_many_failed_jobs_are_borne_unless_the_dag_does(
    folder: Path, rule: str, limits: Throttles, code: int, cancels: bool
) -> None:
    engine = DagEngine(read(f"JOB A a.sub\n{rule}\n", folder), limits)
    engine.apply(events.Began())
    engine.apply(events.NodeSubmitted("A", 1, 2))
    done = engine.apply(events.JobEnded("A", 0, 1))
    assert any(isinstance(action, actions.CancelJobs) for action in done) is cancels
    engine.apply(events.JobEnded("A", 1, 0))
    assert engine.exit_code == code


def test_a_halt_lets_what_runs_end_and_begins_nothing(folder: Path) -> None:
    engine = DagEngine(read("JOB A a.sub\nJOB B a.sub\nPARENT A CHILD B", folder))
    engine.apply(events.Began())
    engine.apply(events.NodeSubmitted("A", 1, 1))
    engine.apply(events.Halted(True))
    engine.apply(events.JobEnded("A", 0, 0))
    assert (engine.exit_code, engine.status) == (1, DagStatus.HALTED)
    assert engine.table.nodes["B"].status is NodeStatus.READY


def test_deferred_scripts_run_again_until_they_say_something_else(folder: Path) -> None:
    engine = DagEngine(read("JOB A a.sub\nSCRIPT DEFER 3 60 PRE A run.sh", folder))
    engine.apply(events.Began())
    assert actions.Wait("A", "PRE", 60.0) in engine.apply(events.ScriptEnded("A", "PRE", 3))
    assert actions.RunScript("A", "PRE") in engine.apply(events.Due("A", "PRE"))
    assert actions.SubmitNode("A") in engine.apply(events.ScriptEnded("A", "PRE", 0))


def test_a_deferred_script_is_not_begun_by_a_crash_but_by_its_time(folder: Path) -> None:
    engine = DagEngine(read("JOB A a.sub\nSCRIPT DEFER 3 60 PRE A run.sh", folder))
    engine.apply(events.Began())
    assert [*engine.outstanding()] == [actions.RunScript("A", "PRE")]
    engine.apply(events.ScriptEnded("A", "PRE", 3))
    assert [*engine.outstanding()] == []
    assert engine.apply(events.ScriptEnded("A", "PRE", 0)) == []  # it does not run
    engine.apply(events.Due("A", "PRE"))
    assert [*engine.outstanding()] == [actions.RunScript("A", "PRE")]


@pytest.mark.parametrize("waits", ["script", "submission"])
def test_what_waits_for_its_time_delays_no_removal(folder: Path, waits: str) -> None:
    text = "JOB A a.sub\nSCRIPT DEFER 3 3600 PRE A run.sh\nFINAL F a.sub"
    engine = DagEngine(read(text, folder))
    engine.apply(events.Began())
    if waits == "script":
        engine.apply(events.ScriptEnded("A", "PRE", 3))
    else:
        engine.apply(events.ScriptEnded("A", "PRE", 0))
        engine.apply(events.SubmitFailed("A", "the server is away"))
    assert actions.SubmitNode("F") in engine.apply(events.Removed())
    for kind in ("PRE", "SUBMIT"):
        assert engine.apply(events.Due("A", kind)) == []


def test_a_crash_forgets_no_cancellation(folder: Path) -> None:
    engine = DagEngine(read("JOB A a.sub\nFINAL F a.sub", folder))
    engine.apply(events.Began())
    engine.apply(events.NodeSubmitted("A", 1, 2))
    assert [*engine.outstanding()] == []
    engine.apply(events.Removed())
    assert [*engine.outstanding()] == [actions.CancelJobs("A", (0, 1))]


def test_a_script_that_is_to_end_is_not_begun_again_by_a_crash(folder: Path) -> None:
    engine = DagEngine(read("JOB A a.sub\nSCRIPT PRE A run.sh\nFINAL F a.sub", folder))
    engine.apply(events.Began())
    engine.apply(events.Removed())
    assert [*engine.outstanding()] == [actions.KillScript("A", "PRE")]
    assert actions.SubmitNode("F") in engine.apply(events.ScriptEnded("A", "PRE", -9))


def test_hold_scripts_run_once_for_each_node_and_decide_nothing(folder: Path) -> None:
    nodes = "".join(f"JOB {name} a.sub\nSCRIPT HOLD {name} run.sh\n" for name in "AB")
    engine = DagEngine(read(nodes, folder), Throttles(max_hold=1))
    engine.apply(events.Began())
    for name in "AB":
        engine.apply(events.NodeSubmitted(name, 1, 2))
    assert actions.RunScript("A", "HOLD") in engine.apply(events.JobHeld("A", 0))
    for event in (events.JobHeld("A", 1), events.JobHeld("B", 0)):
        assert not any(isinstance(a, actions.RunScript) for a in engine.apply(event))
    assert actions.RunScript("B", "HOLD") in engine.apply(events.ScriptEnded("A", "HOLD", 9))
    assert (engine.table.nodes["A"].held, engine.table.nodes["B"].held) == ({0, 1}, {0})
    engine.apply(events.JobReleased("A", 0))
    engine.apply(events.JobStarted("A", 1))
    assert engine.table.nodes["A"].held == set()
    assert engine.table.nodes["A"].status is NodeStatus.SUBMITTED
