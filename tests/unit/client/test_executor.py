from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridbot.api.errors import BadInput, PolicyError
from gridbot.executor import chunks, worker
from gridbot.executor.bots import policy_of
from gridbot.executor.calls import Form, Outcome, PendingCall, Pickling, RemoteError, outcomes
from gridbot_policies import Ads, PolicySet
from gridbot_policies.classad import record

VERSION = "{}.{}".format(*sys.version_info)

# --- chunks


def test_before_a_call_ended_single_ones_are_sent_as_many_as_there_is_room_for() -> None:
    assert chunks.sizes(100, None, 8, 4) == [1, 1, 1, 1]
    assert chunks.sizes(2, None, 8, 4) == [1, 1]
    assert chunks.sizes(100, None, 8, 0) == []
    assert chunks.sizes(100, None, 8, -3) == []


def test_a_chunk_is_a_second_of_work() -> None:
    assert chunks.sizes(1000, 0.1, 8, 0) == [10] * 100


def test_long_calls_go_alone() -> None:
    assert chunks.sizes(3, 60.0, 8, 0) == [1, 1, 1]


def test_little_work_is_shared() -> None:
    assert chunks.sizes(40, 0.1, 8, 0) == [5] * 8


def test_hardly_any_work_is_one_chunk() -> None:
    assert chunks.sizes(1000, 1e-6, 8, 0) == [1000]


@given(st.integers(0, 50_000), st.floats(0, 1e6), st.integers(1, 1000))
def test_every_call_is_in_one_chunk(waiting: int, seconds: float, sharers: int) -> None:
    found = chunks.sizes(waiting, seconds, sharers, 0)
    assert sum(found) == waiting
    assert all(1 <= size <= chunks.MOST_CALLS for size in found)


def test_an_estimate_follows_what_was_measured() -> None:
    assert chunks.estimate(None, [1.0, 3.0]) == 2.0
    assert 2.0 < chunks.estimate(2.0, [10.0]) < 10.0


def test_the_longer_nothing_ends_the_more_calls_are_sent() -> None:
    found = [chunks.probes(waited) for waited in (0.0, 0.9, 1.0, 2.0, 3.0)]
    assert found == [4, 4, 8, 16, 32]
    assert chunks.probes(1e9) == chunks.MOST_CALLS


# --- what a worker makes of calls


class Worker:
    """Runs calls as a job does, without a server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pickling = Pickling(folder, [sys.modules[__name__]])
        copyfile(worker.__file__, folder / "worker.py")

    def run(
        self, function: Callable[..., Any], *arguments: tuple[Any, ...], form: Form = "pickle"
    ) -> list[Outcome]:
        name = self.pickling.function(function)
        calls = [
            PendingCall(name, self.pickling.arguments(args, {}), Future()) for args in arguments
        ]
        item = self.pickling.job(calls, 1)
        copyfile(self.folder / name, self.folder / "function.pickle")
        if item["calls"] == "-":
            copyfile(self.folder / item["data"], self.folder / "calls.pickle")
        program = [sys.executable, "worker.py", VERSION, form, item["calls"]]
        subprocess.run(program, cwd=self.folder, check=True, timeout=60)
        return outcomes((self.folder / "returned").read_bytes(), form, len(calls))


@pytest.fixture
def host(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


class Refusal(Exception):
    """It can be pickled, but not unpickled."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} or {second}")


def refuse(number: int) -> None:
    raise (ValueError(number) if number else Refusal(1, 2))


def leave(_: int) -> None:
    sys.exit(3)


def lock(_: int) -> object:
    return sys._getframe()


def test_values_come_back(host: Worker) -> None:
    found = host.run(lambda x, y: [x, {y}], (1, 2), (None, "a"))
    assert [outcome.value for outcome in found] == [[1, {2}], [None, {"a"}]]
    assert all(outcome.seconds < 10 for outcome in found)


def test_an_exception_comes_back_as_itself_with_its_traceback(host: Worker) -> None:
    (found,) = host.run(refuse, (7,))
    assert isinstance(found.error, ValueError)
    assert found.error.args == (7,)
    assert "in refuse" in str(found.error.__cause__)


def test_an_exception_that_cannot_travel_is_told(host: Worker) -> None:
    (found,) = host.run(refuse, (0,))
    assert isinstance(found.error, RemoteError)
    assert "Refusal: 1 or 2" in str(found.error)
    assert "in refuse" in str(found.error.__cause__)


def test_an_exit_is_the_outcome_of_its_call_alone(host: Worker) -> None:
    first, second = host.run(leave, (1,), (2,))
    assert isinstance(first.error, SystemExit)
    assert isinstance(second.error, SystemExit)


def test_a_value_that_cannot_be_pickled_is_an_error_of_its_call(host: Worker) -> None:
    (found,) = host.run(lock, (1,))
    assert isinstance(found.error, TypeError)


def test_an_instance_of_a_class_that_was_carried_is_one_here(host: Worker) -> None:
    (found,) = host.run(lambda _: Refusal, (1,))
    assert found.value is Refusal


def test_large_arguments_travel_in_a_file(host: Worker) -> None:
    (found,) = host.run(len, (bytes(1_000_000),))
    assert found.value == 1_000_000
    assert (host.folder / "calls-1").exists()
    host.pickling.forget({"data": "calls-1"})
    assert not (host.folder / "calls-1").exists()


def test_a_function_is_one_file_however_often_it_is_called(host: Worker) -> None:
    data = bytes(100_000)
    assert host.pickling.function(data.count) == host.pickling.function(data.count)
    assert len(list(host.folder.glob("function-*"))) == 1


@pytest.mark.parametrize("value", [None, 1, 2.5, "ä", [1, {"a": [True]}]])
def test_json_carries_plain_values(host: Worker, value: object) -> None:
    (found,) = host.run(lambda x: x, (value,), form="json")
    assert found.value == value


def test_json_carries_arrays_and_no_objects(host: Worker) -> None:
    numpy = pytest.importorskip("numpy")
    good, bad = host.run(numpy.array, ([1.5, 2.5],), ([{}],), form="json")
    assert good.value.tolist() == [1.5, 2.5]
    assert isinstance(bad.error, RemoteError)


def test_json_tells_exceptions(host: Worker) -> None:
    whole, failed = host.run(lambda x: 6 // x, (2,), (0,), form="json")
    assert whole.value == 3
    assert "ZeroDivisionError" in str(failed.error)


@pytest.mark.parametrize("form", ["pickle", "json"])
@pytest.mark.parametrize("content", [b"", b"[[]]", b"[1]", b"\x80\x04N.", b"[]"])
def test_what_no_worker_writes_is_refused(content: bytes, form: Form) -> None:
    with pytest.raises(BadInput):
        outcomes(content, form, 1)


def test_another_version_of_python_is_told(host: Worker) -> None:
    ended = subprocess.run(
        [sys.executable, "worker.py", "2.7", "pickle", "-"], cwd=host.folder, capture_output=True,
        text=True,
    )  # fmt: skip
    assert ended.returncode == 1
    assert f"pickled by Python 2.7, and this is {VERSION}" in ended.stderr


# --- who may return pickles


def suits(policy: str, **host: object) -> bool:
    bot = record({"Owner": "alice"})
    attributes = record({"PythonVersion": VERSION, **host})
    return bool(PolicySet.parse(policy).requirements(Ads(attributes, bot, record({}))))


def test_pickles_come_from_own_hosts_from_pilots_and_from_owners_that_are_named() -> None:
    policy = policy_of("pickle", ["bob"], "")
    assert suits(policy, Owner="alice")
    assert suits(policy, Owner="bob")
    assert suits(policy, Owner="grid", IsPilot=True)
    assert not suits(policy, Owner="mallory")
    assert not suits(policy, Owner="ALICE")
    assert not suits(policy, Owner="mallory", IsPilot=False)


def test_json_may_come_from_anybody() -> None:
    assert suits(policy_of("json", [], ""), Owner="mallory")


def test_another_pythons_host_gets_no_calls() -> None:
    assert not suits(policy_of("pickle", [], ""), Owner="alice", PythonVersion="2.7")
    assert not suits(policy_of("json", [], ""), Owner="alice", PythonVersion=None)


def test_a_further_requirement_cannot_open_what_is_closed() -> None:
    policy = policy_of("pickle", [], "Host.Memory > 5 || true")
    assert not suits(policy, Owner="mallory")
    assert suits(policy, Owner="alice", Memory=9)


def test_a_further_requirement_is_a_whole_expression() -> None:
    with pytest.raises(PolicyError, match="requirements"):
        policy_of("pickle", [], "true) || (true")


@pytest.mark.parametrize("name", ['a" || true || "', "a\\"])
def test_a_name_is_no_expression(name: str) -> None:
    with pytest.raises(BadInput, match="no name of an owner"):
        policy_of("pickle", [name], "")
