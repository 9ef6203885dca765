"""Master-Worker on a real server and clients: what is counted once, whatever is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from scripts.assignment.master import SearchMaster
from scripts.assignment.problem import Matrix, Problem, descent, problem_of
from scripts.assignment.search import Search, explore
from tests.system.deployment import Deployment, eventually

from gridbot import RemoteError, Session
from gridbot.api.errors import BadInput
from gridbot.executor.executor import BrokenGridbot
from gridbot.mw import Master

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE = 150.0
# Tasks have a /tmp of their own, and this Python may be below the machine's.
OPTIONS = ("--cpus", "2", "--allow-read", sys.prefix)


@pytest.fixture
def session(running: Deployment) -> Iterator[Session]:
    with running.session() as made:
        yield made


def divide(task: dict[str, int]) -> list[dict[str, int]]:
    """Children of a node of a binary tree of four levels."""
    depth = task["depth"] + 1
    return [{"depth": depth, "number": 2 * task["number"] + i} for i in (0, 1) if depth < 4]


class Tree(Master):
    """Counts the nodes of a tree, and how often each was told of."""

    def begin(self) -> None:
        self.add({"depth": 0, "number": 1})

    def completed(self, task: Any, answer: Any) -> None:
        told = self.state.setdefault("told", {})
        told[str(task["number"])] = told.get(str(task["number"]), 0) + 1
        for child in answer:
            self.add(child, key=child["depth"])


class Numbers(Master):
    """Ten tasks; each answer says which greater keys are not wanted."""

    def begin(self) -> None:
        for number in range(10):
            self.add(number, key=number)

    def completed(self, task: Any, answer: Any) -> None:
        self.state.setdefault("done", []).append(task)
        if answer is not None:
            self.delete_worse_than(answer)


def refuse(task: int) -> None:
    raise ValueError(f"not {task}")


def carried() -> dict[str, Any]:
    """Options of a master whose functions are this module's."""
    return {"modules": [sys.modules[__name__]], "width": 4, "deadline": 30.0}


def test_tasks_make_tasks_and_each_answer_counts_once(
    running: Deployment, session: Session, tmp_path: Path
) -> None:
    running.client("worker", *OPTIONS)
    with Tree(divide, tmp_path / "state", session, **carried()) as master:
        assert master.run()["told"] == {str(number): 1 for number in range(1, 16)}
        statistics = master.statistics
        assert (statistics.added, statistics.completed) == (15, 15)
        assert 0 < statistics.task_seconds < statistics.job_seconds
        assert master.bot
        assert master.bot.wait(PATIENCE).jobs_done == 15
    with Tree(divide, tmp_path / "state", session, **carried()) as again:
        assert len(again.run()["told"]) == 15  # it has ended, and does nothing twice
        assert again.statistics == statistics


def test_tasks_that_are_not_wanted_any_more_are_not_run(
    running: Deployment, session: Session, tmp_path: Path
) -> None:
    with Numbers(lambda task: task, tmp_path / "state", session, **carried()) as master:
        running.client("worker", "--cpus", "1", "--allow-read", sys.prefix)
        done = master.run()["done"]
        statistics = master.statistics
        assert done[0] == 0
        # Of the four that were sent, the client may hold some already.
        assert len(done) <= 4
        assert (statistics.completed, statistics.dropped) == (len(done), 10 - len(done))
        assert (master.listed, master.sent) == (0, 0)


def test_a_task_whose_function_raises_is_tried_again_by_the_next_run(
    running: Deployment, session: Session, tmp_path: Path
) -> None:
    running.client("worker", *OPTIONS)
    with (
        Numbers(refuse, tmp_path / "state", session, **carried()) as master,
        pytest.raises(RemoteError, match="ValueError: not"),
    ):
        master.run()
    with Numbers(lambda _: None, tmp_path / "state", session, **carried()) as master:
        while master.statistics.completed < 10:  # jobs of the old function were out
            try:
                master.run()
            except RemoteError:
                assert master.statistics.failed <= 4
        assert sorted(master.state["done"]) == list(range(10))


def test_an_answer_that_could_not_be_taken_comes_again(
    running: Deployment, session: Session, tmp_path: Path
) -> None:
    class Clumsy(Numbers):
        def completed(self, task: Any, answer: Any) -> None:
            super().completed(task, answer)
            self.add(f"after {task}")
            raise KeyError(task)

    running.client("worker", *OPTIONS)
    with Clumsy(lambda _: None, tmp_path / "state", session, **carried()) as master:
        with pytest.raises(KeyError):
            master.run()
        assert master.state == {}
        assert (master.statistics.added, master.statistics.completed) == (10, 0)
    with Numbers(lambda _: None, tmp_path / "state", session, **carried()) as master:
        assert sorted(master.run()["done"]) == list(range(10))


def test_a_cancelled_bot_ends_the_run_and_a_folder_has_one_master(
    running: Deployment, session: Session, tmp_path: Path
) -> None:
    with (
        ThreadPoolExecutor(1) as threads,
        Numbers(lambda _: None, tmp_path / "state", session, **carried()) as master,
    ):
        with pytest.raises(BadInput, match="another master"):
            Numbers(lambda _: None, tmp_path / "state", session, **carried())
        run = threads.submit(master.run)
        bot = eventually(lambda: master.bot)
        assert bot
        eventually(lambda: bot.show().jobs_total == 4)
        bot.cancel()
        assert isinstance(run.exception(PATIENCE), BrokenGridbot)
        assert (master.listed, master.sent) == (6, 4)


# --- a search whose tree is known

ROWS, COLUMNS = 3, 3
FLOWS = (
    (0, 5, 2, 4, 1, 0, 0, 6, 2), (5, 0, 3, 0, 2, 2, 2, 0, 4), (2, 3, 0, 0, 0, 0, 0, 5, 5),
    (4, 0, 0, 0, 5, 2, 2, 10, 0), (1, 2, 0, 5, 0, 10, 0, 0, 0), (0, 2, 0, 2, 10, 0, 5, 1, 1),
    (0, 2, 0, 2, 0, 5, 0, 10, 5), (6, 0, 5, 10, 0, 1, 10, 0, 0), (2, 4, 5, 0, 0, 1, 5, 0, 0),
)  # fmt: skip


def problem() -> Problem:
    """Nine facilities on a square, with flows of QAPLIB's nug12."""
    places = [divmod(k, COLUMNS) for k in range(ROWS * COLUMNS)]
    distances: Matrix = tuple(tuple(abs(a - c) + abs(b - d) for c, d in places) for a, b in places)
    return problem_of(distances, FLOWS)


# A process of its own, so that it can be killed; it tells of each task that was completed.
SCRIPT = """
import sys
from pathlib import Path
import gridbot
from tests.system.test_mw import search

url, key, folder = sys.argv[1:]
with gridbot.connect(url, key) as session:
    search(session, Path(folder), lambda master: print("completed", flush=True))
"""


def search(session: Session, folder: Path, told: Any = lambda _: None) -> dict[str, Any]:
    """Search it, a node or two per task; return the state."""
    the = problem()
    places = descent(the)
    with SearchMaster(
        the, folder, session, start=the.cost(places), places=places, seconds=0.001, width=4,
        told=told, deadline=30.0, name="search",
    ) as master:  # fmt: skip
        state = master.run()
        assert master.bot
        return {**state, "completed": master.statistics.completed, "bot": master.bot.id}


@pytest.fixture
def known() -> Search:
    """The tree as one process searches it."""
    the = problem()
    found = explore(the, Search([(0, ())], the.cost(descent(the))), PATIENCE)
    assert found.nodes > 30
    return found


@pytest.mark.parametrize("clients", [1, 4])
def test_the_tree_is_the_same_whatever_the_number_of_clients(
    running: Deployment, session: Session, tmp_path: Path, known: Search, clients: int
) -> None:
    for number in range(clients):
        running.client(f"worker-{number}", "--cpus", "1", "--allow-read", sys.prefix)
    state = search(session, tmp_path)
    assert (state["nodes"], state["digest"]) == (known.nodes, known.digest)
    assert (state["best"], state["completed"] > 3) == (known.best, True)


def test_the_tree_is_the_same_after_clients_were_killed(
    running: Deployment, session: Session, tmp_path: Path, known: Search
) -> None:
    for name in ("one", "two"):
        running.client(name, "--cpus", "1", "--allow-read", sys.prefix)
    left = ["one", "two"]

    def kill(master: SearchMaster) -> None:
        if left and master.statistics.completed > 1:
            name = left.pop()
            running.kill_client(name)
            running.client(name, "--cpus", "1", "--allow-read", sys.prefix)

    state = search(session, tmp_path, kill)
    assert left == []
    assert (state["nodes"], state["digest"]) == (known.nodes, known.digest)


def test_a_master_that_is_killed_twice_goes_on(
    running: Deployment, session: Session, tmp_path: Path, known: Search
) -> None:
    running.client("worker", *OPTIONS)
    key = str(running.settings.operator_key_path)
    command = [sys.executable, "-c", SCRIPT, running.url, key, str(tmp_path / "state")]
    for _ in range(2):
        with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as master:
            assert master.stdout
            assert master.stdout.readline() == "completed\n"
            master.send_signal(signal.SIGKILL)
    state = search(session, tmp_path / "state")
    assert (state["nodes"], state["digest"]) == (known.nodes, known.digest)
    bot = session.bot(state["bot"])
    assert bot.wait(PATIENCE).jobs_done == state["completed"]
