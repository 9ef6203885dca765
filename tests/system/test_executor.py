"""Calls through `gridbot.Executor` on a real server and client; what it promises, as CPython's
own tests of executors have it where it applies."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ALL_COMPLETED, CancelledError, as_completed, wait
from pathlib import Path
from typing import Any

import pytest
from tests.system.deployment import Deployment, eventually

import gridbot.joblib
from gridbot import BrokenGridbot, Executor, JobFailed, Session

PATIENCE = 120.0
OWN = sys.modules[__name__]


@pytest.fixture
def session(running: Deployment) -> Iterator[Session]:
    # Tasks have a /tmp of their own, and this Python may be below the machine's.
    running.client("worker", "--cpus", "2", "--allow-read", sys.prefix)
    with running.session() as made:
        yield made


@pytest.fixture
def executor(session: Session) -> Iterator[Executor]:
    with Executor(session, modules=[OWN]) as made:
        yield made


def square(number: int) -> int:
    return number * number


class Unlucky(Exception):
    pass


def fail(number: int) -> None:
    raise Unlucky(number)


def abort_at(number: int, bad: int) -> int:
    if number == bad:
        os.abort()
    return number


def wait_for(gate: str) -> str:
    while os.path.exists(gate):
        time.sleep(0.05)
    return gate


def test_values_come_in_order_and_futures_as_they_end(executor: Executor) -> None:
    assert list(executor.map(square, range(50))) == [i * i for i in range(50)]
    factor = 3
    futures = [executor.submit(lambda x: factor * x, x=i) for i in range(5)]
    assert sorted(future.result() for future in as_completed(futures, PATIENCE)) == [0, 3, 6, 9, 12]
    assert wait(futures, PATIENCE, ALL_COMPLETED).not_done == set()
    assert list(executor.map(pow, (2, 3), (5, 2, 9))) == [32, 9]


def test_an_exception_arrives_as_itself_with_its_traceback(executor: Executor) -> None:
    error = executor.submit(fail, 7).exception(PATIENCE)
    assert isinstance(error, Unlucky)
    assert error.args == (7,)
    assert "raise Unlucky(number)" in str(error.__cause__) or "in fail" in str(error.__cause__)
    with pytest.raises(Unlucky):
        list(executor.map(fail, [1]))


def test_what_cannot_be_pickled_is_the_futures_error(executor: Executor) -> None:
    with pytest.raises(TypeError, match="pickle"):
        executor.submit(square, sys._getframe()).result(PATIENCE)
    assert executor.submit(square, 3).result(PATIENCE) == 9


def test_a_call_that_kills_its_job_takes_no_other_with_it(executor: Executor) -> None:
    assert executor.submit(abort_at, 1, -1).result(PATIENCE) == 1  # so that chunks are larger
    futures = [executor.submit(abort_at, number, 3) for number in range(6)]
    errors = [future.exception(PATIENCE) for future in futures]
    assert [type(error) for error in errors] == [type(None)] * 3 + [JobFailed] + [type(None)] * 2
    assert isinstance(errors[3], JobFailed)
    assert "signal" in errors[3].reason


def test_large_arguments_and_values_pass(executor: Executor) -> None:
    content = os.urandom(300_000)
    assert executor.submit(bytes.__add__, content, b"x").result(PATIENCE) == content + b"x"


def test_many_short_calls_are_few_jobs(executor: Executor) -> None:
    assert executor.submit(pow, 2, 1).result(PATIENCE) == 2  # from now on it is known to be short
    assert sum(executor.map(pow, range(3000), [1] * 3000)) == sum(range(3000))
    assert executor.bot
    assert executor.bot.show().jobs_total < 30


def test_a_functions_content_is_sent_once(running: Deployment, executor: Executor) -> None:
    data = os.urandom(50_000)
    for _ in range(3):
        assert executor.submit(data.count, 1).result(PATIENCE) == data.count(1)
    large = "SELECT count(*) FROM blob WHERE size BETWEEN 50000 AND 51000"
    assert running.rows(large) == [(1,)]


def test_the_bot_is_closed_at_the_end_and_takes_no_more(session: Session) -> None:
    with Executor(session) as executor:
        future = executor.submit(pow, 2, 3)
    assert future.result(0) == 8
    assert executor.bot
    assert executor.bot.wait(PATIENCE).state == "done"
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(pow, 2, 3)


def test_what_was_not_sent_is_cancelled(running: Deployment, session: Session) -> None:
    gate = running.gate()
    with Executor(session, max_workers=1, modules=[OWN]) as executor:
        first = executor.submit(wait_for, str(gate.path))
        others = [executor.submit(square, number) for number in range(5)]
        eventually(first.running)
        assert others[0].cancel()
        assert not first.cancel()
        executor.shutdown(wait=False, cancel_futures=True)
        for other in others:
            with pytest.raises(CancelledError):
                other.result(0)
        gate.open()
    assert first.result(0) == str(gate.path)


def test_a_killed_client_loses_no_call(running: Deployment, executor: Executor) -> None:
    gate = running.gate()
    futures = [executor.submit(wait_for, str(gate.path)) for _ in range(2)]
    eventually(lambda: len(running.programs("worker")) == 2)
    running.kill_client("worker")
    gate.open()
    running.client("worker", "--cpus", "2", "--allow-read", sys.prefix)
    assert [future.result(PATIENCE) for future in futures] == [str(gate.path)] * 2


def test_calls_go_on_after_the_server_was_killed(running: Deployment, executor: Executor) -> None:
    assert executor.submit(square, 2).result(PATIENCE) == 4
    running.crash()
    later = executor.submit(square, 3)
    running.start()
    assert later.result(PATIENCE) == 9


def test_a_cancelled_bot_breaks_the_executor(
    running: Deployment, session: Session, executor: Executor
) -> None:
    future = executor.submit(wait_for, str(running.gate().path))
    eventually(lambda: running.programs("worker"))
    assert executor.bot
    executor.bot.cancel()
    assert isinstance(future.exception(PATIENCE), BrokenGridbot)
    with pytest.raises(BrokenGridbot, match="was cancelled"):
        executor.submit(pow, 2, 3)


SCRIPT = """
import multiprocessing
import gridbot

class Point:
    def __init__(self, x):
        self.x = x

def move(point, by):
    return Point(point.x + by)

if __name__ == "__main__":
    multiprocessing.set_start_method("{method}")
    executor = gridbot.Executor(gridbot.connect("{url}", "{key}"))
    future = executor.submit(move, Point(1), 2)
    future.add_done_callback(lambda done: print(type(done.result()) is Point, done.result().x))
    # nobody shuts the executor down: the interpreter's end waits for it
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_functions_and_classes_of_a_script_need_not_be_on_the_host(
    running: Deployment, session: Session, method: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    key = running.settings.operator_key_path
    script.write_text(SCRIPT.format(method=method, url=running.url, key=key))
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (ended.stdout, ended.returncode) == ("True 3\n", 0), ended.stderr


LATE = """
import atexit
import gridbot

executor = gridbot.Executor(gridbot.connect("{url}", "{key}"))
if {is_used}:
    print(executor.submit(pow, 2, 3).result())

@atexit.register
def submit_late():
    executor.submit(pow, 2, 3)
"""


@pytest.mark.parametrize("is_used", [True, False], ids=["used", "not used before"])
def test_a_call_at_the_end_of_the_interpreter_is_refused(
    running: Deployment, session: Session, is_used: bool
) -> None:
    script = LATE.format(url=running.url, key=running.settings.operator_key_path, is_used=is_used)
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE
    )
    assert ended.stdout == "8\n" * is_used
    assert "RuntimeError: cannot schedule new futures after" in ended.stderr


def count_calls() -> int:
    """How many calls this interpreter has run, with this one."""
    counted = sys.__dict__.setdefault("calls_counted", [])
    counted.append(None)
    return len(counted)


def test_a_worker_stays_for_the_calls_that_follow(session: Session) -> None:
    with Executor(session, modules=[OWN]) as executor:
        counts = [executor.submit(count_calls).result(PATIENCE) for _ in range(9)]
    assert counts.count(1) <= 2  # one in each slot at most


def test_joblib_runs_its_tasks_and_tells_their_errors(session: Session) -> None:
    joblib = pytest.importorskip("joblib")
    with Executor(session) as executor, joblib.parallel_config("gridbot", executor=executor):
        tasks = (joblib.delayed(pow)(number, 2) for number in range(10))
        assert joblib.Parallel()(tasks) == [number**2 for number in range(10)]
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel()([joblib.delayed(divmod)(1, 0)])


def test_a_grid_search_of_scikit_learn_finds_the_same(session: Session) -> None:
    pytest.importorskip("sklearn")
    import joblib
    from sklearn.datasets import load_iris
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    def search() -> Any:
        data, target = load_iris(return_X_y=True)
        return GridSearchCV(SVC(), {"C": [0.1, 10], "gamma": [0.1]}, cv=2).fit(data, target)

    backend = gridbot.joblib.GridbotBackend(session=session)
    with joblib.parallel_config(backend):
        found = search()
    here = search()
    assert found.best_params_ == here.best_params_
    scores = "mean_test_score"
    assert found.cv_results_[scores].tolist() == here.cv_results_[scores].tolist()
