"""A task is held to its processors by pauses, where no cgroup does."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gridbot_client.work.cpu_share import CpuShare

LOOK_SECONDS = 0.5  # between two looks, as the client makes them


@dataclass
class Busy:
    """Threads that always want to run, each on a core of its own."""

    threads: int
    used: float = 0.0
    is_still: bool = False
    pauses: int = 0

    def pause(self) -> None:
        self.pauses += not self.is_still
        self.is_still = True

    def resume(self) -> None:
        self.is_still = False


def watch(task: Busy, share: CpuShare, begun: float, seconds: float) -> float:
    """Look at a task as the client does; return the time after that."""
    now = begun
    while now < begun + seconds:
        wait = min(LOOK_SECONDS, share.pause_seconds(now) or LOOK_SECONDS)
        now += wait
        task.used += 0.0 if task.is_still else task.threads * wait
        if not share.follow(now):
            share.look(now, task.threads, lambda: task.used)
    return now


@pytest.mark.parametrize("cpus", [1, 2, 8])
@pytest.mark.parametrize("threads", [9, 16, 64])
def test_many_busy_threads_use_no_more_than_the_tasks_share(cpus: int, threads: int) -> None:
    task = Busy(threads)
    watch(task, CpuShare(task, cpus), 1000.0, 600.0)
    assert 0.9 * cpus * 600 < task.used < 1.1 * cpus * 600 + threads * LOOK_SECONDS


@pytest.mark.parametrize("threads", [1, 3, 4])
def test_a_task_within_its_share_is_never_paused(threads: int) -> None:
    task = Busy(threads)
    watch(task, CpuShare(task, 4), 0.0, 600.0)
    assert (task.pauses, task.used) == (0, threads * 600.0)


def test_what_a_task_left_unused_counts_for_nothing_later() -> None:
    task = Busy(threads=0)
    share = CpuShare(task, 1)
    now = watch(task, share, 0.0, 3600.0)
    task.threads = 16
    watch(task, share, now, 60.0)
    assert task.used < 1.1 * 60 + 16 * LOOK_SECONDS * 2


def test_a_task_that_ends_in_a_pause_was_told_to_run_again_when_the_pause_was_over() -> None:
    task = Busy(threads=2)
    share = CpuShare(task, 1)
    now = watch(task, share, 0.0, 2.0)
    now += share.pause_seconds(now)
    assert not share.follow(now)
    assert not task.is_still
