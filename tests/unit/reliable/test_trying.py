import math
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gridbot import reliable
from gridbot.reliable import BackOff

AT_ONCE = BackOff(least=0.0)


class Broken(Exception):
    pass


def failing(times: int, calls: list[int]) -> int:
    """Fail a number of times, then return how often it was called."""
    calls.append(1)
    if len(calls) <= times:
        raise Broken(len(calls))
    return len(calls)


def test_what_fails_twice_succeeds_at_the_third_attempt() -> None:
    calls: list[int] = []
    numbers = []
    for attempt in reliable.trying(times=5, back_off=AT_ONCE):
        with attempt:
            numbers.append(attempt.number)
            failing(2, calls)
    assert numbers == [1, 2, 3]


def test_the_last_error_is_raised_as_it_is_with_a_note() -> None:
    calls: list[int] = []
    with pytest.raises(Broken, match="3") as raised:
        for attempt in reliable.trying(times=3, back_off=AT_ONCE):
            with attempt:
                failing(9, calls)
    (note,) = raised.value.__notes__
    assert re.fullmatch(r"given up after 3 attempts, \d+\.\d s", note)


def test_without_a_limit_it_is_tried_once() -> None:
    calls: list[int] = []
    with pytest.raises(Broken):
        reliable.trying()(failing)(9, calls)
    assert len(calls) == 1


def test_a_decorated_function_returns_its_result_and_each_call_has_its_own_limits() -> None:
    @reliable.trying(times=2, back_off=AT_ONCE)
    def work(calls: list[int]) -> int:
        return failing(1, calls)

    assert [work([]), work([])] == [2, 2]
    assert work.__name__ == "work"


def test_errors_of_other_kinds_pass() -> None:
    with pytest.raises(KeyError):
        for attempt in reliable.trying(times=3, on=Broken):
            with attempt:
                raise KeyError


def test_no_attempt_is_made_while_what_is_wanted_is_busy() -> None:
    busy = iter([False, False, True])
    attempts = 0
    for attempt in reliable.trying(times=1, sense=lambda: next(busy), back_off=AT_ONCE):
        with attempt:
            attempts += 1
    assert attempts == 1
    assert next(busy, None) is None


def test_who_waits_for_what_stays_busy_runs_out_of_time() -> None:
    with pytest.raises(reliable.OutOfTime):
        for attempt in reliable.trying(for_=0.01, sense=lambda: False, back_off=AT_ONCE):
            with attempt:
                pytest.fail("it is busy")


def test_what_looks_whether_it_is_free_has_the_limit_too() -> None:
    def looks() -> bool:
        reliable.pause(600)
        return True

    with pytest.raises(reliable.OutOfTime):
        for attempt in reliable.trying(for_=0.01, sense=looks):
            with attempt:
                pytest.fail("it never looked")


def test_a_limit_of_time_is_inherited_and_only_ever_shorter() -> None:
    assert reliable.remaining() == math.inf
    for outer in reliable.trying(for_="1h"):
        with outer:
            for inner in reliable.trying(for_="2d", each="2h"):
                with inner:
                    assert reliable.remaining() <= 3600
    assert reliable.remaining() == math.inf


def test_one_attempt_can_be_shorter_than_all() -> None:
    for attempt in reliable.trying(for_="1h", each="1m"):
        with attempt:
            assert reliable.remaining() <= 60


def test_an_attempt_after_the_outer_limit_is_not_made() -> None:
    attempts = 0
    with pytest.raises(reliable.OutOfTime):
        for outer in reliable.trying(for_=0.5, times=1):
            with outer:
                for inner in reliable.trying(for_="1h", back_off=AT_ONCE):
                    with inner:
                        attempts += 1
                        reliable.pause(60)
    assert attempts == 1


def test_failures_and_pauses_are_told_but_for_the_last() -> None:
    told: list[tuple[str, float]] = []
    with pytest.raises(Broken):
        for attempt in reliable.trying(
            times=3, every=0, told=lambda error, pause: told.append((str(error), pause))
        ):
            with attempt:
                failing(9, [1] * attempt.number)
    assert told == [("2", 0.0), ("3", 0.0)]


class Overloaded(Exception):
    retry_after = 600.0


@pytest.mark.parametrize("limits", [{"back_off": AT_ONCE}, {"every": 0}, {"every": 300}])
def test_a_server_that_wants_to_be_left_alone_is(limits: dict[str, Any]) -> None:
    pauses: list[float] = []

    def told(_: Exception, pause: float) -> None:
        pauses.append(pause)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        for attempt in reliable.trying(times=2, told=told, **limits):
            with attempt:
                raise Overloaded
    assert 600 <= pauses[0] <= 750


@pytest.mark.parametrize(
    ("limits", "asked"),
    [
        ({"for_": "1h"}, 3600),
        ({"for_": "1h", "every": "2h"}, 0),
        ({"for_": "1h", "back_off": BackOff(least=7200, most=7200)}, 0),
        ({"times": 5, "back_off": BackOff(most=10)}, 11),
        ({"times": 5, "every": 5, "back_off": BackOff(most=10)}, 11),
    ],
)
def test_an_error_after_which_no_attempt_is_left_is_raised_at_once(
    limits: dict[str, Any], asked: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading.Event, "wait", lambda *_: pytest.fail("it waits"))
    error, attempts = Overloaded(), 0
    error.retry_after = asked
    with pytest.raises(Overloaded):
        for attempt in reliable.trying(**limits):
            with attempt:
                attempts += 1
                raise error
    assert attempts == 1


@pytest.mark.parametrize("wrong", [{"times": 0}, {"for_": "soon"}, {"every": "-1s"}])
def test_wrong_limits_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="is not"):
        reliable.trying(**wrong)  # type: ignore[arg-type]


def test_any_of_starts_where_the_lot_falls_and_goes_round_once() -> None:
    seen: list[str] = []

    def only_b(item: str) -> str:
        seen.append(item)
        if item != "b":
            raise Broken
        return item * 2

    assert reliable.any_of("abc", only_b, start=lambda _: 2) == ("b", "bb")
    assert seen == ["c", "a", "b"]


def test_any_of_raises_the_last_error_when_none_succeeds() -> None:
    with pytest.raises(Broken, match="b"):
        reliable.any_of("abc", _broken, start=lambda _: 2)


def _broken(item: str) -> None:
    raise Broken(item)


def test_any_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to choose"):
        reliable.any_of([], str)


def test_all_of_returns_results_in_order() -> None:
    assert reliable.all_of(range(20), lambda item: item * 2, at_once=3) == [*range(0, 40, 2)]
    assert reliable.all_of([], str) == []


def test_a_failure_ends_the_programs_of_the_other_branches() -> None:
    def branch(item: int) -> None:
        if item == 0:
            raise Broken("first")
        reliable.run(["sleep", "600"])

    with pytest.raises(Broken, match="first"):
        reliable.all_of(range(4), branch)


def test_a_cancelled_branch_does_not_try_again() -> None:
    attempts = []

    def branch(item: int) -> None:
        if item == 0:
            raise Broken("first")
        for attempt in reliable.trying(for_="1h", back_off=AT_ONCE):
            with attempt:
                attempts.append(item)
                reliable.run(["sleep", "600"])

    with pytest.raises(Broken, match="first"):
        reliable.all_of(range(2), branch)
    assert len(attempts) <= 1


def test_branches_within_branches_are_cancelled() -> None:
    def inner(_: int) -> None:
        reliable.pause(600)

    def outer(item: int) -> None:
        if item == 0:
            raise Broken("first")
        reliable.all_of(range(3), inner)

    with pytest.raises(Broken, match="first"):
        reliable.all_of(range(3), outer)


@pytest.mark.parametrize("leaves", ["setpgid(0, 0)", "setsid()"])
def test_a_cancellation_ends_a_program_with_all_its_processes(tmp_path: Path, leaves: str) -> None:
    """Also those that ignore SIGTERM, and those that left the group or session of their leader."""
    pids = tmp_path / "pids"
    script = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "for _ in range(2):\n"
        "    if os.fork() == 0:\n"
        f"        os.{leaves}\n"
        "        break\n"
        f"with open({str(pids)!r}, 'a') as file:\n"
        "    print(os.getpid(), file=file, flush=True)\n"
        "time.sleep(600)\n"
    )

    def branch(name: str) -> None:
        if name == "program":
            ending = reliable.ProcessEnding(grace=0.1)
            reliable.run([sys.executable, "-c", script], ending=ending)
        while not pids.exists() or pids.read_text().count("\n") < 3:
            reliable.pause(0.01)
        raise Broken("all three have told their numbers")

    with pytest.raises(Broken, match="all three"):
        reliable.all_of(["program", "watch"], branch)
    told = [int(line) for line in pids.read_text().split()]
    assert not [pid for pid in told if _is_alive(pid)]


def _is_alive(pid: int) -> bool:
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return bool(found.stdout.strip()) and not found.stdout.startswith("Z")


def test_an_exit_code_is_an_error_unless_it_is_asked_for() -> None:
    assert reliable.run(["sh", "-c", "exit 3"], check=False) == 3
    with pytest.raises(subprocess.CalledProcessError, match="3"):
        reliable.run(["sh", "-c", "exit 3"])


def test_pauses_double_up_to_the_most_and_spread() -> None:
    usual = BackOff()
    assert [usual.seconds(failures, 0.0) for failures in (1, 2, 3, 4)] == [1, 2, 4, 8]
    assert usual.seconds(1000, 0.0) == 3600
    assert usual.seconds(1, 0.5) == 1.5
