"""What processes hold, counted in this one."""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gridbot_client.work.holdings import Holdings

MEMORY = 1 << 40


def kernel_bytes() -> int:
    return Holdings([os.getpid()], MEMORY, 1).kernel_bytes


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def test_what_the_kernel_keeps_for_watches_and_locks_counts(
    stack: ExitStack, tmp_path: Path
) -> None:
    before = kernel_bytes()
    events = [os.eventfd(0) for _ in range(100)]
    for event in events:
        stack.callback(os.close, event)
    for _ in range(20):
        poll = stack.enter_context(select.epoll())
        for event in events:
            poll.register(event, select.EPOLLIN)
    watched = kernel_bytes()
    assert watched - before > 100_000
    file = stack.enter_context((tmp_path / "locked").open("w"))
    for at in range(1000):
        fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * (1000 - at))
    assert kernel_bytes() - watched > 100_000


def test_more_watches_than_a_look_has_time_for_are_too_much_of_whatever_memory(
    stack: ExitStack,
) -> None:
    events = [os.eventfd(0) for _ in range(550)]
    for event in events:
        stack.callback(os.close, event)
    for _ in range(500):
        poll = stack.enter_context(select.epoll())
        for event in events:
            poll.register(event, select.EPOLLIN)
    held = Holdings([os.getpid()], MEMORY, 1)
    assert held.is_too_much
    assert not Holdings([os.getpid()], MEMORY, 2).is_too_much
    few = Holdings([os.getpid()], 0, 1)
    assert few.is_too_much
    assert few.kernel_bytes < held.kernel_bytes  # the rest was not looked at


def test_a_pipe_counts_with_all_that_it_can_hold(stack: ExitStack) -> None:
    before = Holdings([os.getpid()], MEMORY, 1)
    for end in os.pipe():
        stack.callback(os.close, end)
    assert Holdings([os.getpid()], MEMORY, 1).kernel_bytes - before.kernel_bytes >= 64 << 10


def test_a_file_that_is_deleted_but_open_counts(stack: ExitStack, tmp_path: Path) -> None:
    before = Holdings([os.getpid()], MEMORY, 1).deleted_bytes
    file = stack.enter_context((tmp_path / "deleted").open("wb"))
    file.write(bytes(1 << 20))
    file.flush()
    (tmp_path / "deleted").unlink()
    assert Holdings([os.getpid()], MEMORY, 1).deleted_bytes - before >= 1 << 20


def test_what_is_too_much_depends_on_the_memory_and_the_processors_that_a_task_may_use(
    stack: ExitStack,
) -> None:
    assert not Holdings([os.getpid()], 0, 1).is_too_much
    for _ in range(520):
        for end in os.pipe():
            stack.callback(os.close, end)
    assert Holdings([os.getpid()], MEMORY, 1).is_too_much
    assert not Holdings([os.getpid()], MEMORY, 64).is_too_much
