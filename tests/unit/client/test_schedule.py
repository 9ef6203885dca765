"""When a client asks next."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridbot_client.agent import LocalReplica, Stage
from gridbot_client.protocol.messages import ReplicaId, Resources
from gridbot_client.schedule import (
    BURST,
    LEAST_IDLE_POLL_SECONDS,
    LEAST_POLL_SECONDS,
    RequestSchedule,
)
from gridbot_client.storage import Folder


class Clock:
    """Stands still unless it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def schedule(tmp_path: Path, clock: Clock) -> RequestSchedule:
    folder = Folder(tmp_path / "client")
    folder.make()
    return RequestSchedule(folder, clock)


def held(*stages: Stage) -> list[LocalReplica]:
    return [
        LocalReplica(ReplicaId(1, seq, 1), Resources(), stage) for seq, stage in enumerate(stages)
    ]


def test_a_client_that_has_asked_often_waits_and_shorter_if_it_has_nothing_to_do(
    schedule: RequestSchedule, clock: Clock
) -> None:
    done, more_to_do = held(Stage.FINISHED), held(Stage.FINISHED, Stage.WAITING)
    for _ in range(BURST):
        assert schedule.due_in(more_to_do) <= 0
        schedule.asks()
    assert schedule.due_in(more_to_do) == pytest.approx(BURST * LEAST_POLL_SECONDS)
    assert schedule.due_in(done) == pytest.approx(BURST * LEAST_IDLE_POLL_SECONDS)
    clock.now += BURST * LEAST_IDLE_POLL_SECONDS
    assert schedule.due_in(done) <= 0
    assert schedule.due_in(more_to_do) > 0


def test_a_report_is_due_at_once_and_work_in_hand_is_none(schedule: RequestSchedule) -> None:
    schedule.answered(60.0)
    assert schedule.due_in(held(Stage.RUNNING)) > 10
    assert schedule.due_in(held(Stage.RUNNING, Stage.FINISHED)) <= 0
