from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridbot_client import agent
from gridbot_client.activity import ActivityLog
from gridbot_client.agent import LocalReplica, Room, Stage
from gridbot_client.protocol.messages import ReplicaId, Resources

ROOM = Room(cpus=2, memory_mb=1000)


def items(*stages: Stage, cpus: int = 1, memory_mb: int = 10) -> list[LocalReplica]:
    return [
        LocalReplica(ReplicaId(1, seq, 0), Resources(cpus=cpus, memory_mb=memory_mb), stage)
        for seq, stage in enumerate(stages)
    ]


def test_as_many_start_as_there_are_cpus() -> None:
    held = items(Stage.RUNNING, Stage.WAITING, Stage.WAITING)
    assert list(agent.to_start(held, ROOM)) == [ReplicaId(1, 1, 0)]


def test_memory_bounds_what_starts() -> None:
    assert len(agent.to_start(items(*[Stage.WAITING] * 2, memory_mb=600), ROOM)) == 1


def test_a_wide_replica_is_not_overtaken() -> None:
    narrow = items(Stage.RUNNING)
    wide = LocalReplica(ReplicaId(2, 0, 0), Resources(cpus=2, memory_mb=1), Stage.WAITING)
    late = LocalReplica(ReplicaId(3, 0, 0), Resources(cpus=1, memory_mb=1), Stage.WAITING)
    assert not agent.to_start([*narrow, wide, late], ROOM)


def test_a_replica_larger_than_the_machine_runs_alone() -> None:
    assert len(agent.to_start(items(Stage.WAITING, Stage.WAITING, cpus=64), ROOM)) == 1


def test_no_more_start_than_have_gpus_and_none_overtakes() -> None:
    held = [
        LocalReplica(ReplicaId(1, seq, 0), Resources(gpus=gpus, memory_mb=1), stage)
        for seq, (gpus, stage) in enumerate(
            [(1, Stage.RUNNING), (1, Stage.WAITING), (2, Stage.WAITING), (0, Stage.WAITING)]
        )
    ]
    room = Room(cpus=8, memory_mb=1000, gpus=3)
    assert list(agent.to_start(held, room)) == [ReplicaId(1, 1, 0)]
    assert agent.free_gpus(held[:2], room) == 1
    assert agent.free_gpus(held, room) == 0


def test_a_replica_that_asks_for_more_gpus_than_there_are_does_not_run_alone() -> None:
    wants = LocalReplica(ReplicaId(1, 0, 0), Resources(gpus=2), Stage.WAITING)
    assert not agent.to_start([wants], Room(cpus=8, memory_mb=1000, gpus=1))


def on_nodes(*cpus: int, running: Sequence[tuple[int, ...]] = ()) -> list[tuple[int, ...]]:
    """The nodes that replicas get, of three with four cores each; the first of them run already."""
    held = [
        LocalReplica(ReplicaId(1, seq, 0), Resources(cpus=some, memory_mb=1), Stage.WAITING)
        for seq, some in enumerate(cpus)
    ]
    for seq, nodes in enumerate(running):
        held[seq] = replace(held[seq], stage=Stage.RUNNING, nodes=nodes)
    return list(agent.to_start(held, Room(cpus=12, memory_mb=3000, nodes=3)).values())


def test_replicas_that_share_a_node_fill_it_before_they_take_another() -> None:
    assert on_nodes(1, 2, 1, 3) == [(0,), (0,), (0,), (1,)]
    assert on_nodes(3, 2, 1, running=[(2,)]) == [(0,), (2,)]


def test_no_replica_is_split_over_two_nodes_that_have_a_part_of_its_cores_each() -> None:
    assert on_nodes(2, 2, 2, 3, running=[(0,), (1,), (2,)]) == []


def test_a_replica_larger_than_a_node_has_nodes_for_itself() -> None:
    assert on_nodes(5, 4) == [(0, 1), (2,)]
    assert on_nodes(1, 12, running=[(1,)]) == []
    assert on_nodes(1, 8, running=[(1,)]) == [(0, 2)]
    assert on_nodes(6, 1, running=[(0, 2)]) == [(1,)]


def test_a_replicas_memory_may_need_further_nodes() -> None:
    wide = LocalReplica(ReplicaId(1, 0, 0), Resources(cpus=1, memory_mb=1500), Stage.WAITING)
    room = Room(cpus=12, memory_mb=3000, nodes=3)
    assert agent.to_start([wide], room) == {wide.id: (0, 1)}


def test_nodes_have_a_core_each_where_preferences_leave_fewer() -> None:
    held = items(Stage.WAITING, Stage.WAITING, Stage.WAITING)
    room = Room(cpus=1, memory_mb=3000, nodes=2)
    assert list(agent.to_start(held, room).values()) == [(0,), (1,)]


def test_uploads_and_reports_take_no_room() -> None:
    held = items(Stage.UPLOADING, Stage.FINISHED, Stage.REPORTED, Stage.WAITING, Stage.WAITING)
    assert len(agent.to_start(held, ROOM)) == 2


@given(st.lists(st.tuples(st.sampled_from(Stage), st.integers(1, 4), st.integers(1, 2000))))
def test_what_runs_fits_the_room_or_runs_alone(raw: list[tuple[Stage, int, int]]) -> None:
    held = [
        LocalReplica(ReplicaId(1, seq, 0), Resources(cpus=cpus, memory_mb=memory), stage)
        for seq, (stage, cpus, memory) in enumerate(raw)
        if stage is not Stage.RUNNING
    ]
    started = set(agent.to_start(held, ROOM))
    chosen = [item for item in held if item.id in started]
    assert all(item.stage is Stage.WAITING for item in chosen)
    assert len(chosen) == 1 or sum(item.resources.cpus for item in chosen) <= ROOM.cpus
    assert bool(chosen) == any(item.stage is Stage.WAITING for item in held)


def test_nothing_is_asked_for_while_enough_waits() -> None:
    assert agent.wanted(items(Stage.WAITING, Stage.WAITING), ROOM, 1.0) == 0
    assert agent.wanted(items(Stage.RUNNING, Stage.WAITING), ROOM, 1.0) > 2


def test_short_replicas_that_wait_keep_nobody_busy_for_long() -> None:
    short = [
        LocalReplica(ReplicaId(1, seq, 0), Resources(), Stage.WAITING, seconds=0.1)
        for seq in range(20)
    ]
    assert agent.wanted(short[:19], ROOM, 1.0) > 0
    assert agent.wanted(short, ROOM, 1.0) == 0
    assert agent.wanted(short, ROOM, 2.0) > 0


def test_nothing_is_asked_for_while_results_pile_up() -> None:
    assert agent.wanted(items(*[Stage.REPORTED] * agent.MOST_HELD), ROOM, 1.0) == 0
    assert agent.wanted(items(*[Stage.UPLOADING] * 100), ROOM, 1.0) == 0


def test_a_report_goes_at_once_unless_the_server_is_away() -> None:
    held = items(Stage.FINISHED)
    assert agent.request_in(held, ask_at=90.0, blocked_until=0.0, now=50.0) == 0
    assert agent.request_in(held, ask_at=90.0, blocked_until=60.0, now=50.0) == 10
    assert agent.request_in(items(Stage.REPORTED), 90.0, 0.0, 50.0) == 40


def test_a_client_leaves_only_with_nothing_in_hand() -> None:
    assert agent.may_leave([], 5.0, 5.0)
    assert not agent.may_leave(items(Stage.REPORTED), 5.0, 5.0)
    assert not agent.may_leave([], 4.9, 5.0)
    assert not agent.may_leave([], 1e9, None)


def test_progress_is_summed_up_when_much_happens() -> None:
    lines: list[str] = []
    now = [0.0]
    activity = ActivityLog(lines.append, lambda: now[0])
    for reason in ("", "", "exit_nonzero", ""):
        activity.ended(3, reason)
    assert lines == ["BOT 3: 1 replica finished"]
    now[0] = 5.0
    activity.flush()
    assert lines[1:] == ["BOT 3: 2 replicas finished, 1 failed (exit_nonzero)"]


@pytest.mark.parametrize("count", [1, 3])
def test_a_refused_bot_is_explained_once(count: int) -> None:
    lines: list[str] = []
    activity = ActivityLog(lines.append, lambda: 0.0)
    for _ in range(count):
        activity.refused(3, "it is not signed")
    assert lines == ["refused to run BOT 3: it is not signed"]
