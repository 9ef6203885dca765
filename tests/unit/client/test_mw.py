from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridbot.api.errors import BadInput
from gridbot.mw.work_list import WorkList


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def tasks(file: Path) -> Iterator[WorkList]:
    made = WorkList(file)
    yield made
    made.close()


def fill(tasks: WorkList, *keys: float) -> None:
    with tasks.transaction():
        for number, key in enumerate(keys):
            tasks.add(number, key)


def send(tasks: WorkList, count: int) -> list[int]:
    """Make jobs of the best tasks, numbered from 0; return what they hold."""
    best = tasks.best(count)
    with tasks.transaction():
        for job, task in enumerate(best):
            tasks.send(task.id, job, {"calls": str(job)})
    return [task.content for task in best]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20))
def test_the_least_key_comes_first_and_of_equal_ones_the_first_that_came(
    keys: list[float],
) -> None:
    tasks = WorkList(Path(":memory:"))
    fill(tasks, *keys)
    expected = sorted(range(len(keys)), key=lambda number: (keys[number], number))
    assert [task.content for task in tasks.best(100)] == expected
    assert tasks.least_key() == (min(keys) if keys else None)
    tasks.close()


def test_what_was_sent_is_not_listed(tasks: WorkList) -> None:
    fill(tasks, 3, 1, 2)
    assert send(tasks, 2) == [1, 2]
    assert tasks.counts() == (1, 2)
    assert [task.content for task in tasks.best(9)] == [0]
    assert tasks.items_from(1) == [{"calls": "1"}]


def test_a_task_is_over_once(tasks: WorkList) -> None:
    fill(tasks, 1)
    send(tasks, 1)
    task = tasks.of_job(0)
    assert task
    with tasks.transaction():
        tasks.remove(task.id)
    assert tasks.of_job(0) is None
    assert tasks.counts() == (0, 0)


def test_a_task_can_be_listed_again(tasks: WorkList) -> None:
    fill(tasks, 1)
    send(tasks, 1)
    task = tasks.of_job(0)
    assert task
    with tasks.transaction():
        tasks.list_again(task.id)
    assert tasks.best(1) == [task]
    assert tasks.items_from(0) == []


def test_listed_tasks_with_a_greater_key_go_and_such_jobs_are_unwanted(tasks: WorkList) -> None:
    fill(tasks, 1, 5, 6, 6.5, 7)
    send(tasks, 3)
    with tasks.transaction():
        assert tasks.remove_worse(5) == 2
    assert tasks.counts() == (0, 3)
    assert tasks.unwanted() == [2]
    with tasks.transaction():
        tasks.asked()
        assert tasks.remove_worse(4) == 0
    assert tasks.unwanted() == [1]


def test_a_transaction_that_fails_changes_nothing(tasks: WorkList) -> None:
    fill(tasks, 1)
    with pytest.raises(BadInput, match="JSON"), tasks.transaction():
        tasks.keep({"seen": 7})
        tasks.remove_worse(0)
        tasks.add({1, 2}, 0)
    assert tasks.counts() == (1, 0)
    assert tasks.facts() == {}


def test_it_is_there_when_it_is_opened_again(file: Path) -> None:
    first = WorkList(file)
    fill(first, 2, 1)
    send(first, 1)
    with first.transaction():
        first.keep({"seen": 3})
        first.keep({"seen": 4, "state": {"best": [1]}})
    first.close()
    again = WorkList(file)
    assert again.counts() == (1, 1)
    assert again.of_job(0)
    assert again.facts() == {"seen": 4, "state": {"best": [1]}}
    again.close()


def test_two_masters_cannot_share_it(tasks: WorkList, file: Path) -> None:
    with pytest.raises(BadInput, match="another master"):
        WorkList(file)


def test_a_file_of_something_else_is_refused(file: Path) -> None:
    file.write_text("x" * 5000)
    with pytest.raises(BadInput, match="not a database"):
        WorkList(file)


@pytest.mark.parametrize("value", [math.nan, object(), b"x"])
def test_what_json_does_not_hold_is_refused(tasks: WorkList, value: object) -> None:
    with pytest.raises(BadInput, match="JSON"), tasks.transaction():
        tasks.add(value, 0)
