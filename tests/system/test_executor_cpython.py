"""CPython's own tests of executors, run on `gridbot.Executor` by import.

They are in the package `test` of Python 3.11: on Debian in libpython3.11-testsuite.  Where the
order of events hangs on sleeps, these are stretched, so that a machine may be busy for a while.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import types
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.deployment import Deployment

from gridbot import Executor, Session

PACKAGE = "libpython3.11-testsuite"
DEBIAN = Path("/usr/lib/python3.11/test")  # also of a Python 3.11 that comes without its tests
STRETCH = 5.0

APPLY = (
    ("WaitTests", "test_20369"),
    ("WaitTests", "test_first_completed"),
    ("WaitTests", "test_first_completed_some_already_completed"),
    ("WaitTests", "test_first_exception"),
    ("WaitTests", "test_first_exception_some_already_complete"),
    ("WaitTests", "test_first_exception_one_already_failed"),
    ("WaitTests", "test_all_completed"),
    ("AsCompletedTests", "test_no_timeout"),
    ("AsCompletedTests", "test_zero_timeout"),
    ("AsCompletedTests", "test_duplicate_futures"),
    ("AsCompletedTests", "test_free_reference_yielded_future"),
    ("AsCompletedTests", "test_correct_timeout_exception_msg"),
    ("ExecutorTest", "test_submit"),
    ("ExecutorTest", "test_submit_keyword"),
    ("ExecutorTest", "test_map"),
    ("ExecutorTest", "test_map_exception"),
    ("ExecutorTest", "test_shutdown_race_issue12456"),
    ("ExecutorTest", "test_no_stale_references"),
    ("ExecutorTest", "test_max_workers_negative"),
    ("ExecutorTest", "test_free_reference"),
    ("ExecutorShutdownTest", "test_run_after_shutdown"),
    ("ExecutorShutdownTest", "test_hang_issue12364"),
)
UNSTRETCHED = ("test_20369", "test_duplicate_futures", "test_hang_issue12364")  # any order will do

CLOCK = "a first result within 5 s, which no network promises"
OUTPUT = "reads what a worker prints, which is in a job's log here; test_executor.py has its like"
AT_ONCE = "a call begun within microseconds of its submission; test_executor.py has its like"
OWN_NAMES = "imports the executor from concurrent.futures; test_executor.py has its like"
PRIVATE = "looks for a private class of Python's; test_executor.py has its like"
POOL = "of a pool of processes on this machine, and of its own attributes"
CANNOT = {
    ("WaitTests", "test_timeout"): CLOCK,
    ("ExecutorTest", "test_map_timeout"): CLOCK,
    ("ExecutorShutdownTest", "test_cancel_futures"): AT_ONCE,
    ("ExecutorShutdownTest", "test_interpreter_shutdown"): OUTPUT,
    ("ExecutorShutdownTest", "test_hang_gh83386"): OUTPUT,
    ("ExecutorShutdownTest", "test_submit_after_interpreter_shutdown"): OWN_NAMES,
    ("ProcessPoolExecutorTest", "test_max_workers_too_large"): POOL,
    ("ProcessPoolExecutorTest", "test_killed_child"): POOL,
    ("ProcessPoolExecutorTest", "test_traceback"): PRIVATE,
    ("ProcessPoolExecutorTest", "test_map_chunksize"): "chunksize is ignored: chunks adapt",
    ("ProcessPoolExecutorTest", "test_idle_process_reuse_one"): POOL,
    ("ProcessPoolExecutorTest", "test_idle_process_reuse_multiple"): POOL,
    ("ProcessPoolExecutorTest", "test_max_tasks_per_child"): POOL,
    ("ProcessPoolExecutorTest", "test_max_tasks_per_child_defaults_to_spawn_context"): POOL,
    ("ProcessPoolExecutorTest", "test_max_tasks_early_shutdown"): POOL,
    ("ProcessPoolExecutorTest", "test_python_finalization_error"): POOL,
    ("ProcessPoolExecutorTest", "test_force_shutdown_workers"): POOL,
    ("ProcessPoolExecutorTest", "test_ressources_gced_in_workers"): POOL,
    ("ProcessPoolExecutorTest", "test_saturation"): POOL,
    ("ProcessPoolExecutorTest", "test_traceback_when_child_process_terminates_abruptly"): POOL,
}


@pytest.fixture(scope="module")
def suite() -> Any:
    """Its module."""
    found = _imported()
    if found is None:
        reason = f"no tests of Python's own here: apt-get install {PACKAGE}"
        if "CI" in os.environ and sys.version_info[:2] == (3, 11):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def _imported() -> Any:
    try:
        package = importlib.import_module("test")
        if sys.version_info[:2] == (3, 11):
            package.__path__.append(str(DEBIAN))
        found = importlib.import_module("test.test_concurrent_futures")
    except ImportError:
        return None
    return found if hasattr(found, "WaitTests") else None  # later versions have it in parts


def _long_sleep(seconds: float) -> None:
    time.sleep(seconds * STRETCH)


@pytest.fixture
def session(running: Deployment) -> Iterator[Session]:
    running.client("worker", "--cpus", "5", "--allow-read", sys.prefix)
    with running.session() as made:
        yield made


@pytest.mark.parametrize(("group", "name"), APPLY, ids=lambda word: word)
def test_python_s_own_test_holds(
    suite: Any, session: Session, group: str, name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if name not in UNSTRETCHED:
        clock = types.SimpleNamespace(sleep=_long_sleep, monotonic=time.monotonic)
        monkeypatch.setattr(suite, "time", clock)

    class OnGridbot(suite.ExecutorMixin, getattr(suite, group), unittest.TestCase):  # type: ignore[misc]
        @staticmethod
        def executor_type(max_workers: int) -> Executor:
            return Executor(session, max_workers, modules=[suite, sys.modules[__name__]])

    result = unittest.TestResult()
    OnGridbot(name).run(result)
    assert result.testsRun == 1
    assert [text for _, text in result.failures + result.errors] == []


def test_of_each_of_python_s_own_tests_it_is_said_whether_it_applies(
    suite: Any,
) -> None:
    groups = ("WaitTests", "AsCompletedTests", "ExecutorTest", "ExecutorShutdownTest")
    there = {(group, name) for group in groups for name in _tests(getattr(suite, group))}
    own = _tests(suite.ProcessPoolExecutorTest) - _tests(suite.ExecutorTest)
    there |= {("ProcessPoolExecutorTest", name) for name in own}
    assert there - set(APPLY) - set(CANNOT) == set()
    assert set(APPLY) & set(CANNOT) == set()


def _tests(group: type) -> set[str]:
    return {name for name in dir(group) if name.startswith("test_")}
